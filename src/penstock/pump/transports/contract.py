"""What a transport is: bytes from a source into a sink, bytes of a file to a place.

A transport says what went wrong in the pump's words (`penstock.pump.errors`); whether what came is
what was announced is for the sink to say. Other packages bring transports by the entry point group
`penstock.pump.transports`: a scheme and a function of `Circumstances`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from penstock.pump.credentials import Credentials
from penstock.pump.sources import Source
from penstock.pump.transports.file_rule import FileRule
from penstock.pump.transports.hosts import HostRule


@dataclass(frozen=True, slots=True)
class Span:
    """The stretch of a file that is wanted; without a length, to its end."""

    offset: int = 0
    length: int | None = None

    @property
    def whole(self) -> bool:
        return self.offset == 0 and self.length is None


class Writing(Protocol):
    """Where bytes go, blocking: a draft, or a block of a file."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...


class Sink(Protocol):
    """The same on the event loop, gathered into large writes and held to the bandwidth."""

    @property
    def writing(self) -> Writing: ...

    async def feed(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A file to be sent: which, what it is to be called, and what about it is to be kept."""

    path: Path
    inflight: str  #: a suffix until it is whole; empty where the protocol itself takes care
    mode: int | None = None
    mtime: int | None = None
    span: Span = field(default_factory=Span)  #: of the file here: what is sent as a file there
    files: FileRule = field(default_factory=FileRule)  #: which may be sent


class Transport(Protocol):
    async def fetch(self, source: Source, span: Span, sink: Sink) -> None: ...

    async def send(self, delivery: Delivery, target: Source) -> None: ...

    async def remove(self, target: Source) -> None: ...

    async def close(self) -> None: ...


class Near(Protocol):
    """A transport whose files need no waiting for: whoever writes one may read it there, too."""

    def copy(self, source: Source, span: Span, writing: Writing) -> None: ...


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a transport is made with."""

    credentials: Credentials = field(default_factory=Credentials)
    hosts: HostRule = field(default_factory=HostRule)
    timeout: float = 300.0
    connections: int = 16
    known_hosts: Path | None = None  #: SFTP's; else the user's own
    files: FileRule = field(default_factory=FileRule)  #: which may be fetched by `file:`


def near(transport: Transport) -> Near | None:
    """The transport as one of files that are near; a check of the whole protocol costs too much."""
    return cast(Near, transport) if hasattr(transport, "copy") else None


NewTransport = Callable[[Circumstances], Transport]
