"""Which hosts a post may send us to.

A post is a stranger's word, and the pump can reach hosts that the stranger cannot. Unless private
hosts are allowed, a host is resolved before it is asked, and refused if any of its addresses is not
a public one; the connection then goes to an address that was checked.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from penstock.pump.errors import ForbiddenHost, SourceUnavailable

#: Networks that carry an IPv4 address, and how many bits are behind it: NAT64 (RFC 6052), 6to4.
_CARRIERS: Final = ((IPv6Network("64:ff9b::/96"), 0), (IPv6Network("2002::/16"), 80))
#: NAT64 of one site (RFC 8215), and IPv4-compatible addresses, which nobody assigns any more.
_LOCAL: Final = (IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))


@dataclass(frozen=True, slots=True)
class HostRule:
    private: bool = False  #: hosts that are not of the public network are allowed

    async def check(self, host: str) -> str:
        """What to connect to: an address that is allowed, where that was to be found out."""
        if self.private:
            return host
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise SourceUnavailable(f"{host}: {error.strerror or error}") from error
        for *_, address in found:
            text = str(address[0]).partition("%")[0]
            if not is_public(text):
                raise ForbiddenHost(
                    f"{host} is {text}, which is not a public address: "
                    "set private_hosts = true if posts may name hosts of inner networks"
                )
        return str(found[0][4][0])


def is_public(text: str) -> bool:
    address: IPv4Address | IPv6Address = ip_address(text)
    if isinstance(address, IPv6Address):
        if any(address in network for network in _LOCAL):
            return False
        for network, behind in _CARRIERS:
            if address in network:
                return is_public(str(IPv4Address(int(address) >> behind & 0xFFFFFFFF)))
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
    return address.is_global and not address.is_multicast
