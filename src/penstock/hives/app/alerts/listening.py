"""Word of changes from the database, as they are committed (LISTEN/NOTIFY).

What was said while there was no connection is lost: `connected` is called each time there is one
again, and whoever keeps a copy of something reads all of it then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.logs import get_logger
from penstock.store.address import place

log = get_logger(__name__)

AGAIN_SECONDS: Final = 2.0
CONNECT_SECONDS: Final = 10
#: A server that vanished without a word is noticed within a minute.
_ALIVE: Final[dict[str, Any]] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class Listener:
    """One connection that listens. Owned by one task: cancel `run` to end it."""

    def __init__(
        self,
        url: str,
        channels: Sequence[str],
        heard: Callable[[str, str], None],
        connected: Callable[[], None],
    ) -> None:
        self._url = url
        self._channels = channels
        self._heard = heard
        self._connected = connected

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except psycopg.OperationalError as error:
                reason = str(error).partition("\n")[0]
                log.warning("no word from the database", at=place(self._url), reason=reason)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _listen(self) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, **_ALIVE
        ) as connection:
            for channel in self._channels:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
            self._connected()
            async for notice in connection.notifies():
                self._heard(notice.channel, notice.payload)
