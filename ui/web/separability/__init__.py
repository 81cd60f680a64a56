"""How well decisions can be read off hidden states."""
