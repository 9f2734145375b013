"""Follows the stream of what is kept into the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TypeVar

from penstock.client.fabric import Fabric, Inflow
from penstock.client.message import Message
from penstock.core.logs import get_logger
from penstock.history.archive import Archive
from penstock.history.kept import Kept, publication_of
from penstock.history.questions import QUERY
from penstock.store import StoreUnavailable

#: Entered together: so many, or what has come before a pause.
BATCH: Final = 500
PAUSE_SECONDS: Final = 0.05
#: Between two attempts, while the database is away.
RETRY_SECONDS: Final = 1.0

_log = get_logger("penstock.history")
_T = TypeVar("_T")


class Keeper:
    """`saw` is told what was entered, after it is safe."""

    def __init__(
        self, fabric: Fabric, archive: Archive, stream: str, saw: Callable[[list[Kept]], None]
    ) -> None:
        self._fabric = fabric
        self._archive = archive
        self._stream = stream
        self._saw = saw

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        start = await self._patiently(lambda: self._archive.next_offset(self._stream))
        async with self._fabric.replay(self._stream, start) as inflow:
            while True:
                messages = await _gathered(inflow)
                await self._enter(messages)
                for message in messages:
                    await message.ack()

    async def _enter(self, messages: list[Message]) -> None:
        batch = [kept for message in messages if (kept := kept_of(message)) is not None]
        offset = messages[-1].offset
        assert offset is not None  # every message of a stream has one
        refused = await self._patiently(
            lambda: self._archive.enter(self._stream, batch, offset + 1)
        )
        for kept in refused:
            _log.warning("not kept: a name with NUL in it", publication=kept.id)
        self._saw([kept for kept in batch if kept not in refused])

    @staticmethod
    async def _patiently(work: Callable[[], _T]) -> _T:
        """The database may be away for a while; the stream waits."""
        while True:
            try:
                return await asyncio.to_thread(work)
            except StoreUnavailable as error:
                _log.warning("waiting for the database", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)


async def _gathered(inflow: Inflow) -> list[Message]:
    found = [await inflow.receive()]
    with suppress(TimeoutError):
        while len(found) < BATCH:
            found.append(await asyncio.wait_for(inflow.receive(), PAUSE_SECONDS))
    return found


def kept_of(message: Message) -> Kept | None:
    """What a message of the stream says, if it is to be kept."""
    arrived = message.timestamp or datetime.now(UTC)
    said = publication_of(message.content_type, message.headers, message.body, arrived)
    if said is None or message.offset is None:
        return None
    publication, payload = said
    if QUERY in publication.attributes:  # an answer
        return None
    time = publication.time or arrived
    return Kept(message.offset, message.message_id or "", time, publication, payload)
