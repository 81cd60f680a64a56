"""Short, URL-safe names, made when a value is made: runs, episodes and views, which sort by time; checkpoints and the
requests of the endpoint, which are named by their content."""

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


def request_task_id(question: str) -> str:
    """The task of a request to the endpoint: `request-` and ten characters of a SHA-256 over its question. A seed and a
    task's id key every random draw, so a request that is sent again with its seed has to be the same task."""
    return f"request-{_base32(question.encode(), 10)}"


def _time(now_s: int) -> str:
    return "".join(_DIGITS[now_s >> shift & 31] for shift in range(30, -1, -5))


def _base32(content: bytes, length: int) -> str:
    return base64.b32hexencode(hashlib.sha256(content).digest()).decode().lower()[:length]
