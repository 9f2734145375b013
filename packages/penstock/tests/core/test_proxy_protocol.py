"""Headers of the PROXY protocol, by the examples and limits of its specification."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config import BrokerSettings
from penstock.core.errors import FrameError
from penstock.core.proxy_protocol import (
    IncompleteHeader,
    ProxyHeader,
    TrustedProxies,
    encode_proxy_header,
    parse_proxy_header,
)

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_IPV4 = SIGNATURE + bytes.fromhex("21 11 000c cb007107 0a000001 dcf8 1628")
V2_IPV6 = SIGNATURE + bytes.fromhex(
    "21 21 0024" + "20010db8" + "00" * 11 + "07" + "00" * 15 + "01" + "dcf8 1628"
)


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 56568 5672\r\n", ("203.0.113.7", 56568)),
        (b"PROXY TCP6 2001:db8::7 ::1 56568 5672\r\n", ("2001:db8::7", 56568)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        (V2_IPV4, ("203.0.113.7", 56568)),
        (V2_IPV6, ("2001:db8::7", 56568)),
        (SIGNATURE + bytes.fromhex("20 00 0000"), None),  # LOCAL
        (SIGNATURE + bytes.fromhex("21 31 0004 00000000"), None),  # a UNIX socket
        (
            SIGNATURE + bytes.fromhex("21 11 0010 cb007107 0a000001 dcf8 1628 04000100"),
            ("203.0.113.7", 56568),  # followed by a TLV
        ),
    ],
)
def test_a_header_names_the_client(header: bytes, client: tuple[str, int] | None) -> None:
    assert parse_proxy_header(header + b"AMQP\x00\x00\x09\x01") == ProxyHeader(len(header), client)
    for cut in range(1, len(header)):
        with pytest.raises(IncompleteHeader):
            parse_proxy_header(header[:cut])


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 203.0.113.7 10.0.0.1 56568\r\n",
        b"PROXY TCP6 203.0.113.7 10.0.0.1 56568 5672\r\n",
        b"PROXY TCP4 somewhere 10.0.0.1 56568 5672\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 99999 5672\r\n",
        b"PROXY " + b"x" * 200,
        SIGNATURE + bytes.fromhex("31 11 0000"),
        SIGNATURE + bytes.fromhex("21 11 0004 cb007107"),
        SIGNATURE + bytes.fromhex("21 11 ffff"),
    ],
)
def test_an_invalid_header_is_refused(header: bytes) -> None:
    with pytest.raises(FrameError, match="PROXY header"):
        parse_proxy_header(header)


@given(st.ip_addresses(v=4), st.integers(0, 65535))
def test_what_is_written_is_read(address: object, port: int) -> None:
    header = encode_proxy_header((str(address), port), ("10.0.0.1", 5672))
    assert parse_proxy_header(header) == ProxyHeader(len(header), (str(address), port))


@pytest.mark.parametrize("beginning", [b"AMQP\x00\x00\x09\x01", b"\x10\x0e\x00\x04MQTT", b"GET / "])
def test_other_protocols_have_none(beginning: bytes) -> None:
    assert parse_proxy_header(beginning) is None


def test_networks_are_trusted() -> None:
    trusted = TrustedProxies(["10.1.0.0/16", "::1"])
    assert "10.1.2.3" in trusted
    assert "::1" in trusted
    assert "10.2.0.1" not in trusted
    assert "nonsense" not in trusted
    with pytest.raises(ValueError, match=r"no network such as 10.0.0.0/8"):
        BrokerSettings(proxy_protocol_from=["everyone"])
