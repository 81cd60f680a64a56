"""Pools of models that answer: in this process, from a script, or hosted behind an HTTP API.

`spec` is a model's entry, `pool` what every pool and its flights of calls have in common, `hosted` the pool over HTTP,
which asks each endpoint until it answers (retries, deadline, bill) at the pace of its provider's `throttle`. `client`
makes one try, reads answers with `wire`, `tool_calls` and `server_words` and connects to `addresses` that are allowed.
`cache` pays for equal calls once, `costs` counts tokens and dollars.
"""
