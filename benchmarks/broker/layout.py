"""The messages of a scenario as AMQP 0-9-1 has them on the wire."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.broker import frames
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
    number,
)


def delivery_tag(sequences: Sequences) -> Octets:
    """A consumer's tags count its deliveries from one."""
    return number(sequences + np.uint64(1))


@dataclass(frozen=True, slots=True)
class Layout:
    """As published, and as they must be delivered."""

    exchange: str
    key: Key
    body_bytes: int
    persistent: bool = False

    def published(self, channel: int, capacity: int) -> Rows:
        method = frames.publish(channel, self.exchange, self.key.text)
        # The key ends before the flags octet and the frame end.
        key_start = len(method) - 2 - len(self.key.text)
        return Rows(self._template(channel, method, key_start, ()), capacity)

    def delivered(self, channel: int, consumer: str, capacity: int) -> Rows:
        method = frames.deliver(channel, consumer, 0, self.exchange, self.key.text)
        key_start = len(method) - 1 - len(self.key.text)
        tag_start = frames.PROLOGUE.size + 4 + len(frames.short_string(consumer))
        tag = Column(tag_start, NUMBER, delivery_tag)
        return Rows(self._template(channel, method, key_start, (tag,)), capacity)

    def _template(
        self, channel: int, method: bytes, key_start: int, columns: tuple[Column, ...]
    ) -> Template:
        content = frames.content(channel, body(self.body_bytes), persistent=self.persistent)
        octets = method + content
        body_end = len(octets) - 1
        columns += body_columns(body_end - self.body_bytes, self.body_bytes)
        columns += tuple(part.moved(key_start) for part in self.key.columns)
        # The frame's type, channel and size, and which method it is.
        return Template(octets, columns, frames.PROLOGUE.size + 4, body_end - NUMBER)
