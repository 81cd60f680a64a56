"""The pool as one model: an OpenAI-compatible endpoint in front of a coordinator, every request an episode.

A request's way: `guard` (who may ask: host names, origins, API keys, the size of a body), `api` (the routes, and errors
in OpenAI's form), `errors` (`ApiError`), `wire` and `messages` (the pydantic models of bodies, tools, and messages with
their parts), `conversation` (what it asks, as one question), `service` (it becomes an `Order` within its limits;
decisions; what is forgotten after days), `tiers` (endpoint.toml: who plays it, among which models), `engine` (one
thread plays all orders), `ledger` (cost ceilings and what calls cost), `processes` (several that serve one port over
the same books), `course` (its turns so far, its answer, usage and trace), `replies` (chat completions and responses,
whole and streamed). `formats` and `schema_checks` hold answers against JSON schemas.
"""
