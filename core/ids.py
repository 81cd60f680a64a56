"""Short, sortable, URL-safe names, made in core when a value is made: runs, episodes, checkpoints, views."""

from __future__ import annotations

import base64
import hashlib

_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # base32hex: sorts as the numbers do


def run_id(now_s: int, entropy: bytes) -> str:
    """`r`, seven digits of time (seconds since 1970 in base 32), six of `entropy`; ids of later seconds sort later."""
    return f"r{_time(now_s)}{_base32(entropy, 6)}"


def view_id(now_s: int, entropy: bytes) -> str:
    """`v`, the time as in a run's id, four of `entropy`."""
    return f"v{_time(now_s)}{_base32(entropy, 4)}"


def episode_id(run: str, index: int) -> str:
    """`e`, the run's stem, `-` and the episode's index in its run, in five digits or more."""
    return f"e{run[1:]}-{index:05d}"


def checkpoint_id(content: bytes | str) -> str:
    """`c` and ten characters of a SHA-256 over `content` (a digest will do): same content, same id."""
    return f"c{_base32(content.encode() if isinstance(content, str) else content, 10)}"


def _time(now_s: int) -> str:
    return "".join(_DIGITS[now_s >> shift & 31] for shift in range(30, -1, -5))


def _base32(content: bytes, length: int) -> str:
    return base64.b32hexencode(hashlib.sha256(content).digest()).decode().lower()[:length]
