"""Pools of language models: their specification and the providers that answer for them."""
