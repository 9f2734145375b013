"""Listen addresses, `scheme://host:port`.

The scheme selects the protocol and TLS, the host the interface. Port 0 lets the system choose. The
server decides which schemes a build supports.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

#: Schemes and their default ports.
DEFAULT_PORTS: Final = {
    "amqp": 5672,
    "amqps": 5671,
    "amqp10": 5672,
    "amqps10": 5671,
    "mqtt": 1883,
    "mqtts": 8883,
    "ws": 15675,
    "wss": 15676,
    "padres": 5680,
    "padress": 5681,
    "http": 15672,
    "https": 15671,
}
#: A scheme without TLS → the same protocol with TLS.
TLS_SCHEMES: Final = {
    "amqp": "amqps",
    "amqp10": "amqps10",
    "mqtt": "mqtts",
    "ws": "wss",
    "padres": "padress",
    "http": "https",
}


@dataclass(frozen=True, slots=True)
class ListenAddress:
    scheme: str
    host: str
    port: int

    @property
    def tls(self) -> bool:
        return self.scheme in TLS_SCHEMES.values()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_address(url: str) -> ListenAddress:
    """Raises `ValueError` that says what is allowed."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(
            f"{url!r} is not a listen address: "
            f"should be scheme://host:port with a scheme of {', '.join(DEFAULT_PORTS)}"
        )
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"{url!r}: the port should be a number from 0 to 65535") from None
    if not parts.hostname:
        raise ValueError(f"{url!r}: the host is missing, as in {parts.scheme}://127.0.0.1")
    if parts.username or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"{url!r}: should be {parts.scheme}://host:port and nothing more")
    return ListenAddress(
        parts.scheme, parts.hostname, DEFAULT_PORTS[parts.scheme] if port is None else port
    )


def split_hosts(url: str) -> tuple[str, list[tuple[str, int | None]]]:
    """A URL with several hosts, as members of a cluster are named: with the first only, and the
    other hosts with their ports. Raises `ValueError` for an invalid port."""
    scheme, separator, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, hosts = authority.rpartition("@")
    first, *others = hosts.split(",")
    parts = [urlsplit(f"//{other}") for other in others]
    found = [(part.hostname or "", part.port) for part in parts]
    return f"{scheme}{separator}{user}{at}{first}{rest[len(authority) :]}", found


def shuffled_hosts(
    host: str, port: int, others: Iterable[tuple[str, int]]
) -> list[tuple[str, int]]:
    """All hosts in random order, so that clients do not all try the same first."""
    hosts = [(host, port), *others]
    random.shuffle(hosts)
    return hosts


def is_loopback(host: str) -> bool:
    """Whether a peer at this address is on this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return not host  # a Unix socket has no address
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
