"""Runs under way: `panel` shows where one stands, with the ways to begin, stop and resume it, and the queue of all;
`luck` replays a wrong episode to tell whether it was bad luck."""
