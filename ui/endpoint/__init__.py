"""The pool as one model: an OpenAI-compatible endpoint in front of a coordinator, every request an episode."""
