"""Start a Ray cluster on this machine, or join one, or say in a sentence why that cannot be done."""

from __future__ import annotations

import importlib
import logging
import os
import platform
import socket
from typing import Any

from core.errors import ConfigError
from core.processes import cores

#: How long an address is waited for, in seconds, and how long the first answer of helpers that Ray has to start.
CONNECT_S, START_S = 5.0, 60.0

_WITHOUT = "Ray is not installed: pip install 'trinity-inspector[ray]', or leave --engine out."


def join(address: str) -> tuple[Any, str]:
    """Ray, connected to the cluster at an address, or to one of this machine alone that ends with this process; and
    where its dashboard is."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not address or _is_local(address):
        # What Ray knows of machines without a network of their own: everything listens on 127.0.0.1 alone.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise ConfigError(_WITHOUT) from None
    ray.shutdown()  # of an earlier cluster
    if address:
        _check_listens(address)
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    here = {"num_cpus": cores(), "include_dashboard": False}
    for name in ("ray", "ray.dashboard", "ray._private"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        context = ray.init(**quiet, **({"address": address} if address else {"address": "local", **here}))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        where = f"The Ray cluster at {address} cannot be joined" if address else "Ray cannot be started here"
        raise ConfigError(f"{where}: {reason or type(error).__name__}") from error
    return ray, str(getattr(context, "dashboard_url", "") or "")


def _is_local(address: str) -> bool:
    host = address.removeprefix("ray://").rpartition(":")[0]
    return host in ("127.0.0.1", "localhost", "::1", "[::1]")


def _check_listens(address: str) -> None:
    """ConfigError at once where Ray would try for a minute and more."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(
            f"--engine ray={address} names no address: write ray=HOST:6379, or ray=ray://HOST:10001."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"No Ray cluster listens at {address} ({error.strerror or error}): start one there by ray start --head, or "
            "leave the address out."
        ) from None


def this_program() -> tuple[str, str]:
    """What has to be the same on every machine: Python, and this program."""
    from importlib.metadata import version

    return platform.python_version(), version("trinity-inspector")


def reason_of(error: Exception) -> str:
    """Why something of the cluster failed, in a line."""
    return " ".join(str(getattr(error, "cause", None) or error).split())[:300] or type(error).__name__
