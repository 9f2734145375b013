"""Which hosts a post may send us to.

A post is a stranger's word. Where private hosts are not allowed, a host is resolved before it is
asked, and refused if any of its addresses is this machine's or an inner network's.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from penstock.pump.errors import ForbiddenHost, SourceUnavailable


@dataclass(frozen=True, slots=True)
class HostRule:
    private: bool = True  #: hosts that are not of the public network are allowed

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
            if not ip_address(text).is_global:
                raise ForbiddenHost(f"{host} is {text}, which is not a public address")
        return str(found[0][4][0])
