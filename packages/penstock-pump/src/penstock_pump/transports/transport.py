"""What a transport is: bytes from a source into a sink, bytes of a file to a place.

A transport says what went wrong in the pump's words (`penstock_pump.errors`); whether what came is
what was announced is for the sink to say. Other packages bring transports by the entry point group
`penstock.pump.transports`: a scheme and a function of `TransportContext`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, cast
from urllib.parse import quote, unquote, urlsplit

from penstock.core.units import MiB
from penstock_pump.credentials import PumpCredentials
from penstock_pump.errors import UnsupportedSource
from penstock_pump.posts.post import Post
from penstock_pump.transports.access import FileRule, HostRule


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The stretch of a file that is wanted; without a length, to its end."""

    offset: int = 0
    length: int | None = None

    @property
    def whole(self) -> bool:
        return self.offset == 0 and self.length is None


class ByteWriter(Protocol):
    """Where bytes go, blocking: a draft, or a block of a file."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...


class ByteSink(Protocol):
    """The same on the event loop, gathered into large writes and held to the bandwidth."""

    @property
    def writing(self) -> ByteWriter: ...

    async def feed(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file to be sent: which, what it is to be called, and what about it is to be kept."""

    path: Path
    inflight: str  #: a suffix until it is whole; empty where the protocol itself takes care
    mode: int | None = None
    mtime: int | None = None
    span: ByteRange = field(
        default_factory=ByteRange
    )  #: of the file here: what is sent as a file there
    files: FileRule = field(default_factory=FileRule)  #: which may be sent


class Transport(Protocol):
    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None: ...

    async def send(self, delivery: FileUpload, target: FileSource) -> None: ...

    async def remove(self, target: FileSource) -> None: ...

    async def close(self) -> None: ...


class LocalTransport(Protocol):
    """A transport whose files need no waiting for: whoever writes one may read it there, too."""

    def copy(self, source: FileSource, span: ByteRange, writing: ByteWriter) -> None: ...


@dataclass(frozen=True, slots=True)
class TransportContext:
    """What a transport is made with."""

    credentials: PumpCredentials = field(default_factory=PumpCredentials)
    hosts: HostRule = field(default_factory=HostRule)
    timeout: float = 300.0
    connections: int = 16
    known_hosts: Path | None = None  #: SFTP's; else the user's own
    files: FileRule = field(default_factory=FileRule)  #: which may be fetched by `file:`


def as_local_transport(transport: Transport) -> LocalTransport | None:
    """The transport as one of files that are near; a check of the whole protocol costs too much."""
    return cast(LocalTransport, transport) if hasattr(transport, "copy") else None


TransportFactory = Callable[[TransportContext], Transport]


# Where a file is fetched from: the URL a post means.
#
# The seed's rule: a base URL that ends with a slash is a prefix for the path; one that does not is
# the file itself, and the path says where to put it. Sarracenia's programs join the two whatever
# they end with, which is the other form in use (`join`). A base without a path (`http://host`,
# `file:`) cannot be a file, and is a prefix in either.
#
# In a post names are plain; in a URL they are quoted. The two never meet outside this file.

#: What a server's path may contain without being quoted.
_SAFE: Final = "/!$&'()*+,;=:@~"


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file on a server, or on this machine."""

    url: str

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0].lower()

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def path(self) -> str:
        """The path on the server, plain: what SFTP, FTP and the file system are asked for."""
        if self.scheme == "file":
            return "/" + unquote(self.url[5:], errors="surrogateescape").lstrip("/")
        return unquote(urlsplit(self.url).path)

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]


def source_of(post: Post, *, join: bool = False) -> FileSource:
    base = post.base_url
    if post.retrieve is not None:
        return FileSource(base.rstrip("/") + "/" + quote(post.retrieve.lstrip("/"), _SAFE + "%?"))
    if _is_file_itself(base) and not join:
        return FileSource(base)
    path = quote(post.relpath.lstrip("/"), _SAFE, errors="surrogateescape")
    return FileSource(base.rstrip("/") + "/" + path)


def destination_path(post: Post, *, join: bool = False) -> str:
    """The path a post gives its file: the name is the source's where it names a directory."""
    path = post.rename if post.rename is not None else post.relpath
    return path + source_of(post, join=join).name if path.endswith("/") else path


def _is_file_itself(base: str) -> bool:
    scheme, _, rest = base.partition(":")
    if base.endswith("/"):
        return False
    if scheme.lower() == "file":
        return bool(rest.strip("/"))
    return bool(urlsplit(base).path)


# A file that is sent, or a stretch of it, piece by piece. Blocking.

READ_BYTES: Final = MiB


class FileRangeReader:
    def __init__(self, delivery: FileUpload) -> None:
        span = delivery.span
        self._file = os.fdopen(delivery.files.open(str(delivery.path)), "rb")
        there = max(0, os.fstat(self._file.fileno()).st_size - span.offset)
        self.size = there if span.length is None else min(there, span.length)
        self._left = self.size
        self._file.seek(span.offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def path(self) -> str:
        """Leads to the open file, whatever has its name meanwhile."""
        return f"/proc/self/fd/{self._file.fileno()}"

    def read(self) -> bytes:
        """The next piece; nothing at the end."""
        piece = self._file.read(min(READ_BYTES, self._left))
        self._left -= len(piece)
        return piece


# Which scheme leads to which transport: one line each, imported and made when first asked for.

ENTRY_POINT_GROUP: Final = "penstock.pump.transports"
SCHEMES: Final = {
    "file": "penstock_pump.transports.files:FileTransport",
    "http": "penstock_pump.transports.http:HttpTransport",
    "https": "penstock_pump.transports.http:HttpTransport",
    "sftp": "penstock_pump.transports.sftp:SftpTransport",
    "ftp": "penstock_pump.transports.ftp:FtpTransport",
    "ftps": "penstock_pump.transports.ftp:FtpTransport",
}


class TransportRegistry:
    """The transports of one component; those given come before those there are."""

    def __init__(
        self,
        transport_context: TransportContext,
        given: Mapping[str, TransportFactory] | None = None,
    ) -> None:
        self._transport_context = transport_context
        self._given = dict(given or {})
        self._open: dict[str, Transport] = {}

    def get(self, scheme: str) -> Transport:
        found = self._open.get(scheme)
        if found is None:
            # Schemes of one kind, as http and https, share a transport and its connections.
            place = SCHEMES.get(scheme, scheme)
            found = self._open.get(place) or self._new(scheme)(self._transport_context)
            self._open[scheme] = found
            if scheme not in self._given:
                self._open[place] = found
        return found

    async def close(self) -> None:
        transports = {id(each): each for each in self._open.values()}
        self._open.clear()
        for transport in transports.values():
            await transport.close()

    def _new(self, scheme: str) -> TransportFactory:
        if scheme in self._given:
            return self._given[scheme]
        if scheme in SCHEMES:
            module, _, name = SCHEMES[scheme].partition(":")
            new: TransportFactory = getattr(import_module(module), name)
            return new
        for entry in entry_points(group=ENTRY_POINT_GROUP, name=scheme):
            loaded: TransportFactory = entry.load()
            return loaded
        raise UnsupportedSource(f"no transport for {scheme}: URLs; there are {', '.join(SCHEMES)}")
