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
from tests.core.pool.faulty_server import faulty_server, ok
from tests.core.pool.hosted_calls import ask

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


@pytest.mark.parametrize("text", NEVER)
def test_metadata_and_link_local_addresses_are_always_error(text: str) -> None:
    for allow_private in (True, False):
        assert refusal(ipaddress.ip_address(text), allow_private=allow_private)


def test_private_addresses_are_the_operators_choice() -> None:
    for text in PRIVATE:
        assert "allow_private" in refusal(ipaddress.ip_address(text), allow_private=False)
        assert not refusal(ipaddress.ip_address(text), allow_private=True)
    for text in PUBLIC:
        assert not refusal(ipaddress.ip_address(text), allow_private=False)


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


def test_a_name_that_rebinds_is_resolved_once_and_connected_where_it_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = ["127.0.0.1", "169.254.169.254", "169.254.169.254"]

    def resolve(host: str, port: int, *args: object, **kwargs: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    with faulty_server(ok()) as server:
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *args, **kwargs: (resolve if host == "rebind.test" else real)(host, *args, **kwargs),
        )
        url = server.url.replace("127.0.0.1", "rebind.test")
        assert _error(url, allow_private=True) == ""
        assert len(answers) == 2
        assert "cloud metadata" in _error(url, allow_private=True)
        assert len(server.requests) == 1


def test_one_forbidden_address_among_several_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, *args: object, **kwargs: object) -> list[object]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.1", "169.254.169.254")
        ]

    with faulty_server(ok()) as server:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        assert "cloud metadata" in _error(server.url.replace("127.0.0.1", "mixed.test"), allow_private=True)
        assert server.requests == []


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
    high, low = whole >> 16, whole & 0xFFFF
    return [
        f"[::ffff:{address}]",
        f"[::ffff:{high:x}:{low:x}]",
        f"[64:ff9b::{high:x}:{low:x}]",
        f"[2002:{high:x}:{low:x}::]",
        f"[::{address}]",
    ]


#: Addresses that hand out a cloud's credentials, in every form; and private ones in disguise.
METADATA = [
    *_forms("169.254.169.254"),
    *_mapped("169.254.169.254"),
    *_forms("100.100.100.200"),
    *_forms("168.63.129.16"),
    *(
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
        "192.0.0.192",
        "169.254.170.2",
        "0.0.0.0",
        "169.254.43518",
    ),
]
DISGUISED = [
    *_forms("127.0.0.1")[:-1],
    *_forms("10.0.0.1")[:-1],
    *_forms("192.168.1.1")[:-1],
    *("internal.example", "rebinding.example"),
]


def test_sixty_forms_of_addresses_and_no_forbidden_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names lead into the private network, one of them only from its second look-up on (DNS rebinding)."""
    assert len(METADATA) + len(DISGUISED) >= 60
    reached: list[object] = []
    looked_up = socket.getaddrinfo
    asked: list[str] = []

    def resolve(host: Any, port: Any, *arguments: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        asked.append(str(name))
        if str(name).endswith(".example"):
            first = name == "rebinding.example" and asked.count(str(name)) == 1
            found = "93.184.216.34" if first else "10.0.0.7"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port or 0))]
        return looked_up(host, port, *arguments, **more)

    def connect(_: socket.socket, address: object) -> None:
        reached.append(address)
        raise OSError("not in a test")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", connect)
    for host in METADATA:
        assert _error(f"http://{host}/v1", allow_private=True), host
    for host in DISGUISED:
        for _ in range(2 if host == "rebinding.example" else 1):
            assert _error(f"http://{host}/v1"), host
    assert [one for one in reached if one[0] != "93.184.216.34"] == []  # type: ignore[index]
