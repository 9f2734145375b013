"""Where streams begin and end, as far as AMQP 0-9-1 lets one see.

No method says it, and the message count of a stream is stale. So a consumer is attached to each
stream and what is delivered first is looked at: from `first`, the oldest message; from `last`, the
last chunk, whose end is the stream's.

That the whole chunk has come is not guessed by waiting. A channel delivers all it may before it
goes on to the next method, so the answer to a method sent after the first delivery (a *fence*)
comes behind the chunk. A broker that delivers in slices gets another fence as long as the last one
brought something.

Only an empty stream is told by silence: one that never had a message, or whose last one retention
has taken. A wait that was too short errs to the safe side, for the stream is looked at again for
the next batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pamqp import commands

from penstock.client.amqp091.blocking import BlockingConnection
from penstock.core.errors import NotFound, PreconditionFailed, WireSyntaxError
from penstock.pipeline.amqp.offsets import OFFSET, take_offset
from penstock.wire.amqp091.faults import closed_for
from penstock.wire.amqp091.frames import HEADER, METHOD, Frame, read_method, write_method

#: Silence that means an empty stream, and one that was empty the last time.
EMPTY_SECONDS: Final = 2.0
STILL_EMPTY_SECONDS: Final = 0.1
#: What has begun to come goes on coming.
CHUNK_SECONDS: Final = 20.0
#: More than a chunk holds.
PREFETCH: Final = 65_535
#: A stream that is written to while it is looked at could go on forever.
FENCES: Final = 20


@dataclass(slots=True)
class Look:
    """A look at one stream: where from, and what was seen."""

    where: str | int | datetime
    prefetch: int = PREFETCH
    patience: float = EMPTY_SECONDS
    first: int | None = None  #: the first offset that was delivered
    end: int | None = None  #: the one after the last
    fences: int = 0
    at_fence: int | None = None  #: the end when the last fence was answered
    done: bool = False

    @property
    def wait(self) -> float:
        return self.patience if self.end is None else CHUNK_SECONDS


def look(connection: BlockingConnection, wanted: Mapping[str, Look]) -> dict[str, Look]:
    """Look at all of the streams at once; those that are not there are left out of the answer."""
    # All channels first: waiting for one to open would pass over what comes on another.
    channels = {connection.open_channel(): item for item in wanted.items()}
    for channel, (name, each) in channels.items():
        qos = write_method(channel, commands.Basic.Qos(0, each.prefetch))
        consume = commands.Basic.Consume(0, name, "look", arguments={OFFSET: each.where})
        connection.send(qos + write_method(channel, consume))
    missing = _watch(connection, channels)
    for channel, (name, _) in channels.items():
        if name not in missing:
            connection.close_channel(channel)
    return {name: each for name, each in wanted.items() if name not in missing}


def _watch(connection: BlockingConnection, channels: Mapping[int, tuple[str, Look]]) -> set[str]:
    """Take in what is delivered until every look is done; the names of streams not there."""
    missing: set[str] = set()
    began = time.monotonic()
    while waiting := [each for _, each in channels.values() if not each.done]:
        left = began + max(each.wait for each in waiting) - time.monotonic()
        try:
            frames = connection.receive(left)
        except TimeoutError:
            if all(each.end is None for each in waiting):
                return missing  # silence: they are empty
            raise
        for frame in frames:
            if frame.channel not in channels:
                continue
            name, each = channels[frame.channel]
            if frame.kind == HEADER:
                _note(each, frame, name)
                if not each.fences:
                    _fence(connection, frame.channel, each)
            elif frame.kind == METHOD and not each.done:
                value = read_method(frame.payload)
                if isinstance(value, commands.Channel.Close):
                    _check_missing(connection, value)
                    connection.accept_close(frame.channel)
                    missing.add(name)
                    each.done = True
                elif isinstance(value, commands.Basic.QosOk) and each.fences:
                    _answered(connection, frame.channel, each)
    return missing


def _note(each: Look, frame: Frame, name: str) -> None:
    try:
        offset, _ = take_offset(frame.payload)
    except WireSyntaxError:
        raise PreconditionFailed(f"{name!r} is a queue and no stream") from None
    if each.first is None:
        each.first = offset
    each.end = offset + 1


def _fence(connection: BlockingConnection, channel: int, each: Look) -> None:
    each.fences += 1
    if each.prefetch == 1:  # only the first was wanted
        each.done = True
        return
    connection.send(write_method(channel, commands.Basic.Qos(0, each.prefetch)))


def _answered(connection: BlockingConnection, channel: int, each: Look) -> None:
    """A fence has been answered: done, unless more came before it than before the last one."""
    each.done = each.end == each.at_fence or each.fences >= FENCES
    each.at_fence = each.end
    if not each.done:
        _fence(connection, channel, each)


def _check_missing(connection: BlockingConnection, close: commands.Channel.Close) -> None:
    """Raises unless the broker closed for a stream that is not there."""
    text = close.reply_text or ""
    error = closed_for(close.reply_code or 0, text, connection.address)
    if isinstance(error, PreconditionFailed) and OFFSET in text:
        raise PreconditionFailed(f"this is a queue and no stream: {error}")
    if not isinstance(error, NotFound):
        raise error
