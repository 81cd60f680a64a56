"""Pools of models that answer: in this process, from a script, or hosted behind an HTTP API.

`spec` is a model's entry, `pool` what every pool and its flights of calls have in common, `hosted` the pool over HTTP.
A hosted call goes through `endpoint` (retries, deadline, bill), `throttle` (the provider's pace) and `client` (one
try), which reads answers with `wire`, `tool_calls` and `server_words` and connects to `addresses` that are allowed.
`cache` pays for equal calls once, `costs` counts tokens and dollars.
"""
