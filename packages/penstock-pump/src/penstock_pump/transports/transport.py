"""The interface of transports, their registry, and the URLs of files.

A transport fetches a file into a sink, or sends a local file; its errors are those of
`penstock_pump.errors`. The sink verifies the content. Other packages add transports with the entry
point group `penstock.pump.transports`: a scheme and a function of `TransportContext`.

The URL of a file follows sr_post(7): a base URL that ends with a slash is a prefix of the path; one
that does not is the file itself, and the path only tells where to put it. Sarracenia's programs
always join the two (`join`). A base URL without a path (`http://host`, `file:`) is always a prefix.
Names are unescaped in posts and quoted in URLs; only this module converts them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Protocol, Self, cast
from urllib.parse import quote, unquote, urlsplit

from penstock.core.units import MiB
from penstock_pump.credentials import PumpCredentials
from penstock_pump.errors import UnsupportedSource
from penstock_pump.posts.post import Post
from penstock_pump.transports.access import FileRule, HostRule
from penstock_pump.transports.listing import IndexReader, ListedFile, read_index
from penstock_pump.transports.proxy import ProxyRule

READ_BYTES: Final = MiB
#: Characters of a path that are not quoted in a URL.
_SAFE: Final = "/!$&'()*+,;=:@~"
ENTRY_POINT_GROUP: Final = "penstock.pump.transports"
SCHEMES: Final = {
    "file": "penstock_pump.transports.files:FileTransport",
    "http": "penstock_pump.transports.http:HttpTransport",
    "https": "penstock_pump.transports.http:HttpTransport",
    "sftp": "penstock_pump.transports.sftp:SftpTransport",
    "ftp": "penstock_pump.transports.ftp:FtpTransport",
    "ftps": "penstock_pump.transports.ftp:FtpTransport",
    "s3": "penstock_pump.transports.s3:S3Transport",
}


@dataclass(frozen=True, slots=True)
class ByteRange:
    offset: int = 0
    length: int | None = None  #: None: to the end of the file

    @property
    def whole(self) -> bool:
        return self.offset == 0 and self.length is None


class ByteWriter(Protocol):
    """A blocking destination of bytes: a file in flight, or a block of a file."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...


class ByteSink(Protocol):
    """The same on the event loop, buffered and limited in bandwidth."""

    @property
    def writer(self) -> ByteWriter: ...

    async def feed(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A local file to send."""

    path: Path
    inflight: str  #: suffix of the name until the file is complete
    mode: int | None = None
    mtime: int | None = None
    span: ByteRange = field(default_factory=ByteRange)  #: the part of the file to send
    files: FileRule = field(default_factory=FileRule)  #: which may be sent
    pace: Callable[[int], None] | None = None  #: called after each piece, to limit the bandwidth


class Transport(Protocol):
    #: Whether a block can be written into a file in any order.
    can_write_blocks: bool

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None: ...

    async def send(self, upload: FileUpload, target: FileSource) -> None: ...

    async def remove(self, target: FileSource) -> None: ...

    async def list(self, source: FileSource) -> list[ListedFile]:
        """What is directly below a directory."""

    async def make_link(self, target: FileSource, link: str) -> None: ...

    async def make_directory(self, target: FileSource, mode: int | None) -> None: ...

    async def remove_directory(self, target: FileSource) -> None: ...

    async def write_block(self, upload: FileUpload, temporary: FileSource, offset: int) -> None: ...

    async def finish_file(
        self, upload: FileUpload, temporary: FileSource, target: FileSource
    ) -> None:
        """Sets mode and times of a file whose blocks are complete, and gives it its name."""

    async def close(self) -> None: ...


class LocalTransport(Protocol):
    """A transport of local files, which the thread that writes the copy can read."""

    def copy(self, source: FileSource, span: ByteRange, writer: ByteWriter) -> None: ...


@dataclass(frozen=True, slots=True)
class TransportContext:
    credentials: PumpCredentials = field(default_factory=PumpCredentials)
    hosts: HostRule = field(default_factory=HostRule)
    timeout: float = 300.0
    connections: int = 16
    known_hosts: Path | None = None  #: of SFTP; None: the user's file
    files: FileRule = field(default_factory=FileRule)  #: which may be fetched by `file:`
    proxy: ProxyRule = field(default_factory=ProxyRule)
    user_agent: str = "penstock-pump"
    zone: tzinfo = UTC  #: of times in listings without a time zone
    index_reader: IndexReader = read_index  #: of index pages of HTTP servers


def as_local_transport(transport: Transport) -> LocalTransport | None:
    """`isinstance` with a Protocol would cost too much per file."""
    return cast(LocalTransport, transport) if hasattr(transport, "copy") else None


TransportFactory = Callable[[TransportContext], Transport]


@dataclass(frozen=True, slots=True)
class FileSource:
    url: str

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0].lower()

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def path(self) -> str:
        """The unquoted path, for SFTP, FTP and the file system."""
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
    """The path that a post gives its file; where it is a directory, with the name of the source."""
    path = post.rename if post.rename is not None else post.relpath
    return path + source_of(post, join=join).name if path.endswith("/") else path


def _is_file_itself(base: str) -> bool:
    scheme, _, rest = base.partition(":")
    if base.endswith("/"):
        return False
    if scheme.lower() == "file":
        return bool(rest.strip("/"))
    return bool(urlsplit(base).path)


class WholeFilesOnly:
    """The part of a transport whose servers have neither blocks nor links nor directories."""

    can_write_blocks = False

    async def make_link(self, target: FileSource, link: str) -> None:
        raise UnsupportedSource(f"{target.url}: {target.scheme}: servers have no links")

    async def make_directory(self, target: FileSource, mode: int | None) -> None:
        """Directories come with their files."""

    async def remove_directory(self, target: FileSource) -> None:
        """Directories go with their files."""

    async def write_block(self, upload: FileUpload, temporary: FileSource, offset: int) -> None:
        raise UnsupportedSource(f"{target_name(temporary)}: blocks cannot be written")

    async def finish_file(
        self, upload: FileUpload, temporary: FileSource, target: FileSource
    ) -> None:
        raise UnsupportedSource(f"{target_name(target)}: blocks cannot be written")


def target_name(target: FileSource) -> str:
    return f"{target.scheme}://{target.host}{target.path}"


class FileRangeReader:
    """Reads the file of an upload, or its range, piece by piece. Blocking."""

    def __init__(self, upload: FileUpload) -> None:
        span = upload.span
        self._file = os.fdopen(upload.files.open(str(upload.path)), "rb")
        rest = max(0, os.fstat(self._file.fileno()).st_size - span.offset)
        self.size = rest if span.length is None else min(rest, span.length)
        self._left = self.size
        self._pace = upload.pace
        self._file.seek(span.offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def path(self) -> str:
        """Of the open file, even if its name now belongs to another."""
        return f"/proc/self/fd/{self._file.fileno()}"

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        piece = self._file.read(min(READ_BYTES, self._left))
        self._left -= len(piece)
        if self._pace is not None:
            self._pace(len(piece))
        return piece


class TransportRegistry:
    """The transports of one component, imported and created on first use. `given` overrides the
    built-in ones."""

    def __init__(
        self, context: TransportContext, given: Mapping[str, TransportFactory] | None = None
    ) -> None:
        self._context = context
        self._given = dict(given or {})
        self._open: dict[str, Transport] = {}

    def get(self, scheme: str) -> Transport:
        found = self._open.get(scheme)
        if found is None:
            # Schemes such as http and https share a transport and its connections.
            key = SCHEMES.get(scheme, scheme)
            found = self._open.get(key) or self._new(scheme)(self._context)
            self._open[scheme] = found
            if scheme not in self._given:
                self._open[key] = found
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
            try:
                new: TransportFactory = getattr(import_module(module), name)
            except ImportError as error:
                raise UnsupportedSource(
                    f"{scheme}: URLs need {error.name}: install penstock-pump[{scheme}]"
                ) from error
            return new
        for entry in entry_points(group=ENTRY_POINT_GROUP, name=scheme):
            loaded: TransportFactory = entry.load()
            return loaded
        raise UnsupportedSource(f"no transport for {scheme}: URLs; known are {', '.join(SCHEMES)}")


def transport_schemes() -> dict[str, str]:
    """The schemes of URLs, each with the module that its transport lacks; empty if it has all."""
    found = {entry.name: "" for entry in entry_points(group=ENTRY_POINT_GROUP)}
    for scheme, place in SCHEMES.items():
        try:
            import_module(place.partition(":")[0])
        except ImportError as error:
            found[scheme] = f"install penstock-pump[{scheme}], which has {error.name}"
        else:
            found[scheme] = ""
    return dict(sorted(found.items()))
