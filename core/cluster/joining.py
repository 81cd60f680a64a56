"""Start a Ray cluster on this machine, or join one, or say in a sentence why that cannot be done."""

from __future__ import annotations

import importlib
import logging
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.processes import cores

#: How long an address is waited for, in seconds, and how long the first answer of helpers that Ray has to start.
CONNECT_S, START_S = 5.0, 60.0

#: Whether Ray's processes ask each other for a token: "token" or "disabled". What the user set holds; Ray sets it, too.
_MODE = "RAY_AUTH_MODE"
_USERS_MODE = os.environ.get(_MODE)
#: What only Ray's own processes answer: of the cluster's head, and of the server behind ray://.
_HEAD, _SERVER = "/ray.rpc.NodeInfoGcsService/CheckAlive", "/ray.rpc.RayletDriver/ClusterInfo"

#: Whether machines have a network of their own, as the user says. With one, Ray looks for a cluster of 127.0.0.1 at
#: another address of this machine, and waits for it for many minutes.
_NETWORK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_USERS_NETWORK = os.environ.get(_NETWORK)

_WITHOUT = "Ray is not installed: pip install 'trinity-inspector[ray]', or leave --engine out."


def join(address: str) -> tuple[Any, str]:
    """Ray, connected to the cluster at an address, which `core.settings.ray_address` has checked, or to one of this
    machine alone that ends with this process; and where its dashboard is."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    alone = not address or _is_local(address)
    if alone:
        # What Ray knows of machines without a network of their own: everything listens on 127.0.0.1 alone.
        os.environ.setdefault(_NETWORK, "0")
    constants: Any = sys.modules.get("ray._private.ray_constants")
    if constants is not None and _USERS_NETWORK is None:  # it was imported before, when it read this
        constants.ENABLE_RAY_CLUSTER = not alone
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise ConfigError(_WITHOUT) from None
    ray.shutdown()  # of an earlier cluster
    if address:
        _check_listens(address)
    _agree_on_tokens(address)
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    # This process shares the work, on a core of its own; Ray starts a process for each of the others at once.
    here = {"num_cpus": max(1, cores() - 1), "include_dashboard": False}
    for name in ("ray", "ray.dashboard", "ray._private"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        context = ray.init(**quiet, **({"address": address} if address else {"address": "local", **here}))
    except Exception as error:
        where = f"The Ray cluster at {address} cannot be joined" if address else "Ray cannot be started here"
        raise ConfigError(f"{where}: {reason_of(error)}") from error
    return ray, str(getattr(context, "dashboard_url", "") or "")


def _is_local(address: str) -> bool:
    host = address.removeprefix("ray://").rpartition(":")[0]
    return host in ("127.0.0.1", "localhost", "::1", "[::1]")


def _check_listens(address: str) -> None:
    """ConfigError at once where Ray would try for a minute and more."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"No Ray cluster listens at {address} ({error.strerror or error}): start one there by ray start --head, or "
            "choose another engine."
        ) from None


def _agree_on_tokens(address: str) -> None:
    """Ask for tokens if the cluster does: `ray start` does where its machine has one, and a driver that joins by an
    address does not by itself. ConfigError where the cluster does not take this machine's."""
    mode = _USERS_MODE or ("token" if not address or _is_refused(address, "") else "disabled")
    if address and mode == "token" and _is_refused(address, token := _token()):
        raise ConfigError(
            f"The Ray cluster at {address} asks for a token"
            f"{', and this machine has another one' if token else ''}: copy ~/.ray/auth_token from the cluster's head "
            "to this machine, or set RAY_AUTH_TOKEN to what it holds."
        )
    if os.environ.get(_MODE) != mode:
        os.environ[_MODE] = mode
        if (raylet := sys.modules.get("ray._raylet")) is not None:
            raylet.Config.initialize("")  # or what it read when it was imported would stay


def _token() -> str:
    """This machine's token for Ray clusters, from where Ray reads it; empty where there is none."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return path.read_text().strip() if path.is_file() else ""


def _is_refused(address: str, token: str) -> bool:
    """Whether who listens there refuses a call with this token."""
    grpc: Any = importlib.import_module("grpc")  # which Ray's clients speak, too
    method = _SERVER if address.startswith("ray://") else _HEAD
    with grpc.insecure_channel(address.removeprefix("ray://")) as channel:
        try:
            sent = (("authorization", f"Bearer {token}"),) if token else ()
            channel.unary_unary(method)(b"", timeout=CONNECT_S, metadata=sent)
        except grpc.RpcError as error:
            return bool(error.code() is grpc.StatusCode.UNAUTHENTICATED)
    return False


def this_program() -> tuple[str, str]:
    """What has to be the same on every machine: Python, and this program."""
    from importlib.metadata import version

    return platform.python_version(), version("trinity-inspector")


def reason_of(error: Exception) -> str:
    """Why something of the cluster failed, in a line: of a traceback that came with it, its last one."""
    text = str(getattr(error, "cause", None) or error)
    said, _, traceback = text.partition("Traceback (most recent call last):")
    if traceback and (lines := traceback.strip().splitlines()):
        text = f"{said} {lines[-1]}"
    return " ".join(text.split())[:300] or type(error).__name__
