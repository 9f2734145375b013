"""The PROXY protocol, versions 1 and 2: a proxy tells the address of its client before all else.

Bytes in, values out. Only trusted proxies may do so: others could claim any address.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple

from penstock.core.errors import FrameError

_V1: Final = b"PROXY "
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
#: The longest header of version 1, with its end.
_V1_BYTES: Final = 107
_V2_HEAD: Final = struct.Struct(">BBH")
#: The longest header that is accepted.
MAX_HEADER_BYTES: Final = 16 + 1024


class ProxyHeader(NamedTuple):
    size: int
    client: tuple[str, int] | None  #: None for the proxy itself, such as its health checks


class IncompleteHeader(Exception):
    """More bytes are needed."""


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the beginning; None if there is none. Raises IncompleteHeader, FrameError."""
    if data.startswith(_V2):
        return _parse_v2(data)
    if data.startswith(_V1):
        return _parse_v1(data)
    if _V1.startswith(data) or _V2.startswith(data):
        raise IncompleteHeader
    return None


def _parse_v1(data: bytes) -> ProxyHeader:
    line, end, _ = data[:_V1_BYTES].partition(b"\r\n")
    if not end:
        if len(data) >= _V1_BYTES:
            raise FrameError("PROXY header: the line is too long")
        raise IncompleteHeader
    words = line.decode("latin-1").split(" ")
    size = len(line) + 2
    if words[1:2] == ["UNKNOWN"]:
        return ProxyHeader(size, None)
    try:
        _, family, source, _target, port, _target_port = words
        address = ip_address(source)
        if family != f"TCP{address.version}" or not 0 <= int(port) <= 65535:
            raise ValueError
    except ValueError:
        raise FrameError(f"PROXY header: {line!r} cannot be read") from None
    return ProxyHeader(size, (str(address), int(port)))


def _parse_v2(data: bytes) -> ProxyHeader:
    if len(data) < 16:
        raise IncompleteHeader
    command, family, length = _V2_HEAD.unpack_from(data, 12)
    size = 16 + length
    if command >> 4 != 2 or command & 15 > 1 or size > MAX_HEADER_BYTES:
        raise FrameError("PROXY header: version 2 cannot be read")
    if len(data) < size:
        raise IncompleteHeader
    address: IPv4Address | IPv6Address
    if command & 15 == 0 or family not in (0x11, 0x21):  # LOCAL, or no TCP
        return ProxyHeader(size, None)
    if family == 0x11 and length >= 12:
        address, at = IPv4Address(data[16:20]), 24
    elif family == 0x21 and length >= 36:
        address, at = IPv6Address(data[16:32]), 48
    else:
        raise FrameError("PROXY header: the addresses are cut")
    return ProxyHeader(size, (str(address), int.from_bytes(data[at : at + 2], "big")))


def encode_proxy_header(source: tuple[str, int], target: tuple[str, int]) -> bytes:
    """Version 1."""
    family = ip_address(source[0]).version
    if ip_address(target[0]).version != family:
        return b"PROXY UNKNOWN\r\n"
    return f"PROXY TCP{family} {source[0]} {target[0]} {source[1]} {target[1]}\r\n".encode()


class TrustedProxies:
    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ip_network(one, strict=False) for one in networks]

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(found in one for one in self._networks)
