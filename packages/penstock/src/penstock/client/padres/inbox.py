"""Inboxes for received publications, and the confirms that give the broker credit.

A broker sends a limited number of unconfirmed publications, so a slow program leaves the rest at
the broker. A publication is read when its reader requests the next one or closes the inbox; if it
is in several inboxes, when all have read it. `ReadProgress` counts for one connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from penstock.client.errors import FabricClosed
from penstock.content import Publication, Variable, parse_publication
from penstock.content.messages import Value
from penstock.core.errors import PenstockError
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

T = TypeVar("T")

#: Confirm after so many publications, and when all are read.
CONFIRM_INTERVAL: Final = 100


class ReadProgress:
    """The publications of one connection, and how far they have been read."""

    __slots__ = ("_confirm", "_confirmed", "_done", "_entries")

    def __init__(self, confirm: Callable[[int], None]) -> None:
        self._confirm = confirm
        self._entries: deque[InboxEntry] = deque()
        self._done = 0  # the receipt up to which all are read
        self._confirmed = 0

    def begin(self, receipt: int, readers: int) -> InboxEntry:
        entry = InboxEntry(self, receipt, readers)
        self._entries.append(entry)
        return entry

    def advance(self) -> None:
        entries = self._entries
        while entries and not entries[0].left:
            self._done = entries.popleft().receipt
        if not entries or self._done - self._confirmed >= CONFIRM_INTERVAL:
            self.flush()

    def flush(self) -> None:
        if self._done > self._confirmed:
            self._confirmed = self._done
            self._confirm(self._done)


class InboxEntry:
    __slots__ = ("_reading", "left", "receipt")

    def __init__(self, reading: ReadProgress, receipt: int, readers: int) -> None:
        self._reading = reading
        self.receipt = receipt
        self.left = readers  #: inboxes that still hold it

    def read(self) -> None:
        self.left -= 1
        if not self.left:
            self._reading.advance()


class PublicationInbox(Generic[T]):
    """Iterate over it, or `receive()` one at a time."""

    def __init__(self, left: Callable[[PublicationInbox[T]], None] | None = None) -> None:
        self._left = left
        self._waiting: deque[tuple[T, InboxEntry]] = deque()
        self._current: InboxEntry | None = None
        self._news = asyncio.Event()
        self._failure: PenstockError | None = None

    def put(self, received: T, entry: InboxEntry) -> None:
        self._waiting.append((received, entry))
        self._news.set()

    def fail(self, error: PenstockError) -> None:
        """No more will arrive; waiting publications can still be read."""
        self._failure = error
        self._news.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def drop(self) -> None:
        """The last received publication is unread."""
        self._current = None

    def finish(self) -> None:
        """The last received publication is read."""
        entry, self._current = self._current, None
        if entry is not None:
            entry.read()

    async def receive(self) -> T:
        self.finish()
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        received, self._current = self._waiting.popleft()
        return received

    def close(self) -> None:
        """Later publications go to the other inboxes; waiting ones are dropped."""
        self.finish()
        if self._left is not None:
            self._left(self)
        while self._waiting:
            self._waiting.popleft()[1].read()
        self.fail(FabricClosed("the inbox is closed"))

    def __aiter__(self) -> PublicationInbox[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except FabricClosed:
            raise StopAsyncIteration from None


@dataclass(frozen=True, slots=True)
class ReceivedPublication:
    """A publication, with the metadata of its envelope."""

    publication: Publication
    broker: str  #: the id of the broker that delivered it
    envelope: PadresEnvelope = field(repr=False)

    @classmethod
    def of(cls, envelope: PadresEnvelope, broker: str) -> ReceivedPublication:
        return cls(parse_publication(envelope.text), broker, envelope)

    @property
    def class_name(self) -> str:
        return self.publication.class_name

    @property
    def attributes(self) -> Mapping[str, Value | Variable]:
        return self.publication.attributes

    def __getitem__(self, attribute: str) -> Value | Variable:
        return self.publication.attributes[attribute]

    @property
    def text(self) -> str:
        """In the content language."""
        return self.envelope.text

    @property
    def id(self) -> str:
        """Assigned by the broker that accepted it."""
        return self.envelope.id

    @property
    def payload(self) -> bytes:
        return self.envelope.payload

    @property
    def source(self) -> str:
        """The broker that accepted it and the publisher, as `B1-ada`."""
        return self.envelope.source

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.envelope.time, UTC)


@dataclass(frozen=True, slots=True)
class SubscriptionNotice:
    """A subscription that matches an advertisement of this client, or its withdrawal."""

    id: str  #: of the subscription
    text: str  #: the subscription; empty when it was withdrawn
    broker: str  #: the id of the broker that sent the notice
    envelope: PadresEnvelope = field(repr=False)

    @classmethod
    def of(cls, envelope: PadresEnvelope, broker: str) -> SubscriptionNotice:
        if envelope.kind is EnvelopeKind.SUBSCRIBE:
            return cls(envelope.id, envelope.text, broker, envelope)
        return cls(envelope.text, "", broker, envelope)

    @property
    def withdrawn(self) -> bool:
        return not self.text
