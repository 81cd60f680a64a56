"""Where a model may live: checked on the address that is really connected to."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from core.errors import PoolError
from core.pool.addresses import is_private_by_name, refusal
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from tests.core.pool.faulty_server import ask, faulty_server, ok

NEVER = [
    "169.254.169.254", "169.254.0.1", "168.63.129.16", "100.100.100.200", "192.0.0.192",
    "fe80::1", "fd00:ec2::254", "fd20:ce::254",
    "::ffff:169.254.169.254", "2002:a9fe:a9fe::", "64:ff9b::a9fe:a9fe", "2001:0:0:0:0:0:5601:5601",
    "0.0.0.0", "::", "224.0.0.1", "ff02::1",
]  # fmt: skip
PRIVATE = [
    "127.0.0.1", "127.9.9.9", "::1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fc00::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "240.0.0.1", "255.255.255.255",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"]


def test_metadata_and_link_local_addresses_are_refused_and_private_ones_the_operators_choice() -> None:
    def refused(text: str) -> list[str]:
        return [refusal(ipaddress.ip_address(text), allow_private=allowed) for allowed in (False, True)]

    assert [text for text in NEVER if not all(refused(text))] == []
    for text in PRIVATE:
        forbidden, allowed = refused(text)
        assert "allow_private" in forbidden
        assert allowed == ""
    assert [text for text in PUBLIC if any(refused(text))] == []


def test_a_literal_address_is_a_choice_and_a_disguised_one_is_not() -> None:
    assert all(
        is_private_by_name(host) for host in ("127.0.0.1", "::1", "localhost", "a.localhost", "10.1.1.1")
    )
    assert not any(
        is_private_by_name(host) for host in ("2130706433", "0x7f.1", "127.1", "example.com", "nip.io")
    )


def _error(url: str, **fields: Any) -> str:
    """Why nothing came of a call; empty where something did."""
    try:
        pool = HttpPool([ModelSpec("m", base_url=url, attempts=1, timeout_s=5.0, **fields)])
    except PoolError as error:  # what is no address at all
        return str(error)
    [(_, reply)] = pool.ask([ask()])
    pool.close()
    return reply.error.message if reply.error else ""


def test_disguised_loopback_needs_the_operators_word() -> None:
    with faulty_server(ok()) as server:
        for host in ("2130706433", "0x7f000001", "127.1", "0177.1"):
            assert "allow_private" in _error(server.url.replace("127.0.0.1", host))
        assert server.requests == []
        assert _error(server.url.replace("127.0.0.1", "127.1"), allow_private=True) == ""
        assert _error(server.url.replace("127.0.0.1", "localhost")) == ""


def resolve_to(monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[list[str]]]) -> None:
    """Names that lead to these addresses, at each look-up to the next ones, and to the last again and again."""
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *arguments: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in answers:
            return real(host, port, *arguments, **more)
        found = answers[name].pop(0) if len(answers[name]) > 1 else answers[name][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port or 0)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_a_name_is_resolved_once_and_refused_where_one_of_its_addresses_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, metadata = "127.0.0.1", "169.254.169.254"
    answers = {"rebind.test": [[here], [metadata], [metadata]], "mixed.test": [[here, metadata]]}
    resolve_to(monkeypatch, answers)
    with faulty_server(ok()) as server:
        rebinding, mixed = (server.url.replace(here, name) for name in answers)
        assert _error(rebinding, allow_private=True) == ""
        assert len(answers["rebind.test"]) == 2
        assert "cloud metadata" in _error(rebinding, allow_private=True)
        assert "cloud metadata" in _error(mixed, allow_private=True)
        assert len(server.requests) == 1


def test_a_name_that_does_not_resolve_is_said() -> None:
    for host in ("no-such-host.invalid", "a..b", "x" * 300):
        assert "cannot be resolved" in _error(f"http://{host}/v1")


def _forms(address: str) -> list[str]:
    """The ways in which resolvers understand an IPv4 address besides its usual one."""
    a, b, c, d = (int(part) for part in address.split("."))
    whole = int(ipaddress.ip_address(address))
    return [
        str(whole), hex(whole), f"0{whole:o}", f"{a}.{whole & 0xFFFFFF}", f"{a}.{b}.{(c << 8) + d}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"{a:#x}.{b}.0{c:o}.{d}", f"{address}.",
    ]  # fmt: skip


def _mapped(address: str) -> list[str]:
    whole = int(ipaddress.ip_address(address))
    last = f"{whole >> 16:x}:{whole & 0xFFFF:x}"
    return [
        f"[::ffff:{address}]",
        f"[::ffff:{last}]",
        f"[64:ff9b::{last}]",
        f"[2002:{last}::]",
        f"[::{address}]",
    ]


#: Addresses that hand out a cloud's credentials, in every form; and private ones in disguise.
METADATA = [
    *_forms("169.254.169.254"), *_mapped("169.254.169.254"), *_forms("100.100.100.200"), *_forms("168.63.129.16"),
    "[fe80::1]", "[fd00:ec2::254]", "[fd20:ce::254]", "192.0.0.192", "169.254.170.2", "0.0.0.0", "169.254.43518",
]  # fmt: skip
DISGUISED = [*(form for one in ("127.0.0.1", "10.0.0.1", "192.168.1.1") for form in _forms(one)[:-1])]


def test_sixty_forms_of_addresses_and_no_forbidden_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names lead into the private network, one of them only from its second look-up on (DNS rebinding)."""
    assert len(METADATA) + len(DISGUISED) >= 60
    reached: list[object] = []
    outside, inside = "93.184.216.34", "10.0.0.7"

    def connect(_: socket.socket, address: object) -> None:
        reached.append(address)
        raise OSError("not in a test")

    resolve_to(monkeypatch, {"internal.example": [[inside]], "rebinding.example": [[outside], [inside]]})
    monkeypatch.setattr(socket.socket, "connect", connect)
    for host in METADATA:
        assert _error(f"http://{host}/v1", allow_private=True), host
    for host in (*DISGUISED, "internal.example", "rebinding.example", "rebinding.example"):
        assert _error(f"http://{host}/v1"), host
    assert [one for one in reached if one[0] != outside] == []  # type: ignore[index]
