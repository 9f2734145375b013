"""Which hosts a post may send us to.

A post is a stranger's word, and the pump can reach hosts that the stranger cannot. Unless private
hosts are allowed, a host is resolved before it is asked, and refused if any of its addresses is not
a public one; the connection then goes to an address that was checked.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Final

from penstock_pump.errors import (
    BadPost,
    ForbiddenFile,
    ForbiddenHost,
    PumpError,
    SourceMissing,
    SourceUnavailable,
    UnsupportedSource,
)
from penstock_pump.files.target import is_inside

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


# Which files of this machine a post may name.
#
# A post is a stranger's word, and the pump can read files that the stranger cannot. So `file:` URLs
# lead into listed directories only. The file is opened by its path alone (`O_PATH`) at first, the
# kernel then says where that is, symbolic links resolved, and only a file inside is opened for
# reading: what was checked is what is read, whatever is renamed meanwhile.


@dataclass(frozen=True, slots=True)
class FileRule:
    directories: tuple[Path, ...] = ()  #: absolute; none: no file at all

    def open(self, path: str) -> int:
        """A regular file, open for reading. Blocking."""
        found = -1
        try:
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
            own = f"/proc/self/fd/{found}"
            self._check(path, os.readlink(own))  # noqa: PTH115 - it is asked for every file
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise UnsupportedSource(f"{path} is not a regular file")
            return os.open(own, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            # Whether there is such a file outside is nobody's business, either.
            self._check(path, os.path.realpath(path.replace("\0", "")))
            raise explain(path, error) from error
        finally:
            if found >= 0:
                os.close(found)

    def _check(self, path: str, real: str) -> None:
        """Most directories are no links: those are compared before any is resolved."""
        if not any(is_inside(real, os.fspath(each)) for each in self.directories) and not any(
            is_inside(real, os.path.realpath(each)) for each in self.directories
        ):
            raise ForbiddenFile(
                f"file:{path} is not below a directory of file_directories: "
                "list its directory there if posts may name its files"
            )


def explain(path: str, error: OSError | ValueError) -> PumpError:
    """What the file system said of a file, in the pump's words."""
    if isinstance(error, ValueError):
        return BadPost(f"{path!r} is no path: {error}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return SourceMissing(f"{path} is not there")
    if error.errno == errno.ENAMETOOLONG:
        return BadPost(f"{path[:120]}… is too long for a path of this machine")
    return SourceUnavailable(f"{path}: {error.strerror}")
