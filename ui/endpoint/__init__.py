"""The pool as one model: an OpenAI-compatible endpoint in front of a coordinator, every request an episode.

A request's way: `guard` (who may ask), `api` (the routes), `wire` and `messages` (what clients may send),
`conversation` (what it asks), `service` and `tiers` (who plays it, within which limits), `engine` and `ledger` (it is
played and paid for), `course` (what happened), `replies` (its answer in the forms of both APIs). `formats` and
`schema_checks` hold answers against JSON schemas.
"""
