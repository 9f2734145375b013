"""Which hosts and local files a post may name.

Posts are untrusted input, and the pump can reach hosts and read files that their authors cannot.

Hosts: unless private hosts are allowed, a host is resolved before the connection, and refused if
any of its addresses is not public. The connection then goes to a checked address.

Files: `file:` URLs may name files in listed directories only. The file is opened with `O_PATH`, the
kernel tells where it is with links resolved, and only a file inside is opened for reading. So the
file that was checked is the one that is read, whatever is renamed meanwhile.
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

#: Networks with an embedded IPv4 address, and how many bits follow it: NAT64 (RFC 6052), 6to4.
_CARRIERS: Final = ((IPv6Network("64:ff9b::/96"), 0), (IPv6Network("2002::/16"), 80))
#: NAT64 of one site (RFC 8215), and deprecated IPv4-compatible addresses.
_LOCAL: Final = (IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))


@dataclass(frozen=True, slots=True)
class HostRule:
    private: bool = False  #: hosts of private networks are allowed

    async def check(self, host: str) -> str:
        """The address to connect to; the host itself where private hosts are allowed."""
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
                    f"{host} has the address {text}, which is not public: "
                    "set private_hosts = true if posts may name hosts of private networks"
                )
        return str(found[0][4][0])


def is_public(text: str) -> bool:
    address: IPv4Address | IPv6Address = ip_address(text)
    if isinstance(address, IPv6Address):
        if any(address in network for network in _LOCAL):
            return False
        for network, suffix_bits in _CARRIERS:
            if address in network:
                return is_public(str(IPv4Address(int(address) >> suffix_bits & 0xFFFFFFFF)))
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
    return address.is_global and not address.is_multicast


@dataclass(frozen=True, slots=True)
class FileRule:
    directories: tuple[Path, ...] = ()  #: absolute

    def open(self, path: str) -> int:
        """The descriptor of a regular file, open for reading. Blocking."""
        fd = -1
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            own = f"/proc/self/fd/{fd}"
            self._check(path, os.readlink(own))  # noqa: PTH115 - called for every file
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnsupportedSource(f"{path} is not a regular file")
            return os.open(own, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            # Do not tell either whether a file outside exists.
            self._check(path, os.path.realpath(path.replace("\0", "")))
            raise explain(path, error) from error
        finally:
            if fd >= 0:
                os.close(fd)

    def _check(self, path: str, real: str) -> None:
        """Most directories are no links, so they are compared before they are resolved."""
        if not any(is_inside(real, os.fspath(each)) for each in self.directories) and not any(
            is_inside(real, os.path.realpath(each)) for each in self.directories
        ):
            raise ForbiddenFile(
                f"file:{path} is not below a directory of file_directories: "
                "add its directory there if posts may name its files"
            )


def explain(path: str, error: OSError | ValueError) -> PumpError:
    """The pump's error for an error of the file system."""
    if isinstance(error, ValueError):
        return BadPost(f"{path!r} is not a path: {error}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return SourceMissing(f"{path} does not exist")
    if error.errno == errno.ENAMETOOLONG:
        return BadPost(f"{path[:120]}… is too long for a path")
    return SourceUnavailable(f"{path}: {error.strerror}")
