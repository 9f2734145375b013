"""The messages of a scenario as MQTT has them on the wire, and the answers to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.harness.rows import (
    NUMBER,
    Column,
    Key,
    Octets,
    Rows,
    Sequences,
    Template,
    body,
    body_columns,
    decimals,
)
from benchmarks.mqtt import packets

#: Packet numbers go from 1 to this, and begin again.
_NUMBERS: Final = 65535
#: How many sensors there may be, and what they are called.
_SENSORS: Final = 1_000
_DIGITS: Final = 3
_NAMES: Final = decimals(_SENSORS, _DIGITS)
_TOPIC: Final = "sensors/000/report"
_NAME_AT: Final = _TOPIC.index("0")


@dataclass(frozen=True, slots=True)
class Turns:
    """Who publishes which message: so many publishers, each `batch` messages at a time."""

    publishers: int
    batch: int

    def publisher(self, sequences: Sequences) -> Sequences:
        return sequences // np.uint64(self.batch) % np.uint64(self.publishers)

    def packet_number(self, sequences: Sequences) -> Octets:
        """Each publisher counts its own messages."""
        batch = np.uint64(self.batch)
        turns = sequences // np.uint64(self.batch * self.publishers)
        return packet_number(turns * batch + sequences % batch)

    def share(self, messages: int, publisher: int) -> int:
        """How many of the first `messages` are this publisher's."""
        rounds, rest = divmod(messages, self.batch * self.publishers)
        return rounds * self.batch + min(max(rest - publisher * self.batch, 0), self.batch)

    @property
    def key(self) -> Key:
        """Each publisher is a sensor and reports under a topic of its own."""
        if self.publishers == 1:
            return Key(_TOPIC)
        name = Column(_NAME_AT, _DIGITS, lambda n: _NAMES.take(self.publisher(n), axis=0))
        return Key(_TOPIC, (name,))


def packet_number(sequences: Sequences) -> Octets:
    numbers = sequences % np.uint64(_NUMBERS) + np.uint64(1)
    return numbers.astype(">u2").view(np.uint8).reshape(-1, 2)


def pubacks(capacity: int) -> Rows:
    """The answers to one publisher, which come in the order of what they answer."""
    columns = (Column(2, 2, packet_number),)
    return Rows(Template(packets.puback(1), columns, head=2), capacity)


@dataclass(frozen=True, slots=True)
class Layout:
    """As published, and as delivered: but for the number of the packet, the same."""

    version: int
    qos: int
    payload_bytes: int
    turns: Turns

    @property
    def filter(self) -> str:
        return "sensors/+/report" if self.turns.publishers > 1 else self.turns.key.text

    @property
    def free(self) -> slice:
        """The octets that are the broker's to choose when it delivers: the packet's number."""
        start = self._topic_at + len(self.turns.key.text)
        return slice(start, start + 2 if self.qos else start)

    @property
    def number_at(self) -> int:
        """Where the payload ends with the sequence number."""
        return len(self._octets) - NUMBER

    def published(self, capacity: int) -> Rows:
        numbers = (Column(self.free.start, 2, self.turns.packet_number),) if self.qos else ()
        return self._rows(numbers, capacity)

    def delivered(self, capacity: int) -> Rows:
        return self._rows((), capacity)

    def _rows(self, columns: tuple[Column, ...], capacity: int) -> Rows:
        octets, topic_at = self._octets, self._topic_at
        columns += body_columns(len(octets) - self.payload_bytes, self.payload_bytes)
        columns += tuple(part.moved(topic_at) for part in self.turns.key.columns)
        # Before the topic and its length stand the kind of the packet and the packet's length.
        return Rows(Template(octets, columns, topic_at - 2, self.number_at), capacity)

    @property
    def _octets(self) -> bytes:
        payload = body(self.payload_bytes)
        return packets.publish(self.version, self.turns.key.text, self.qos, payload)

    @property
    def _topic_at(self) -> int:
        return self._octets.index(self.turns.key.text.encode())
