"""Which addresses a model may live at, checked at the moment of connecting and not before."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from contextlib import suppress

import httpcore

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Where clouds hand credentials to whoever asks (AWS, Azure, Alibaba, Oracle, Google over IPv6).
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192")
    + ("fd00:ec2::254", "fd20:ce::254")
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: An outdated way to write IPv4 addresses as IPv6, which some systems still follow.
COMPATIBLE = ipaddress.ip_network("::/96")


class AddressRefused(Exception):
    """A host that leads to an address no model may live at; `str(error)` is the reason."""


def is_private_by_name(host: str) -> bool:
    """Whether the operator wrote a literal address or localhost, and so meant whatever network that is."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return True


def refusal(address: Address, *, allow_private: bool) -> str:
    """Why `address` is refused, or "" when it is allowed."""
    forms = (address, *_embedded(address))
    if any(form in METADATA or form.is_link_local for form in forms):
        return f"{address} is a link-local or cloud metadata address, where no model may live"
    if any(form.is_multicast or form.is_unspecified for form in forms):
        return f"{address} is not an address to connect to (for this machine write 127.0.0.1)"
    if not allow_private and not all(form.is_global for form in forms):
        return f"{address} is a private address (allow it with allow_private = true)"
    return ""


def _embedded(address: Address) -> tuple[Address, ...]:
    """The IPv4 address that an IPv6 address leads to by mapping, 6to4, Teredo or NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    nat64 = last if address in NAT64 or (address in COMPATIBLE and int(last) > 1) else None
    teredo = address.teredo[1] if address.teredo else None
    return tuple(form for form in (address.ipv4_mapped, address.sixtofour, teredo, nat64) if form is not None)


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, refuses forbidden addresses and connects to exactly the address it has checked,
    so that a name which changes its address between check and use gains nothing."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """To the first address of `host` that answers. Raises AddressRefused, httpcore.ConnectError."""
        addresses = await self._resolve(host, port)
        share = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._backend.connect_tcp(address, port, share, local_address, socket_options)
        return await self._backend.connect_tcp(addresses[-1], port, share, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _resolve(self, host: str, port: int) -> list[str]:
        try:
            found = await asyncio.to_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError("its host name cannot be resolved") from error
        addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        for address in addresses:
            if reason := refusal(ipaddress.ip_address(address), allow_private=self._allow_private):
                raise AddressRefused(reason)
        return addresses
