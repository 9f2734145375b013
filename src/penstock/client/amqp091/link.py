"""A connection that mends itself: whoever uses it says what to do on each new one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.client.amqp091.connection import Connection, connect
from penstock.client.errors import BrokerUnreachable, FabricClosed
from penstock.client.patience import patiently
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.wire.amqp091.address import Address
from penstock.wire.amqp091.faults import Lost

log = get_logger(__name__)

#: What passes: the broker is away, or went while it was spoken to.
_AWAY: Final = (BrokerUnreachable, Lost)

#: Declares and consumes; done again on every new connection. It is lost by then, or for good, if
#: this raises.
Prepare = Callable[[Connection], Awaitable[None]]


class Link:
    """Opened once, closed once; between the two there is a connection most of the time."""

    def __init__(
        self, address: Address, purpose: str, prepare: Prepare, *, patience: float = 0.0
    ) -> None:
        self._address = address
        self._purpose = purpose
        self._prepare = prepare
        self._patience = patience
        self._connection: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # there is a connection, or there will be no other
        self._closed = False
        self.failed: asyncio.Future[PenstockError] | None = None  #: why there will be no other

    async def open(self) -> None:
        """Returns when it is prepared; a broker that is away is waited for, for so long."""
        self.failed = asyncio.get_running_loop().create_future()
        self._connection = await patiently(self._connect, self._patience, _AWAY)
        self._changed.set()
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        self._closed = True
        self._changed.set()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.lost.done()

    async def connection(self) -> Connection:
        """As soon as there is one."""
        while True:
            assert self.failed is not None, "not opened"
            if self.failed.done():
                raise self.failed.result()
            if self._closed:
                raise FabricClosed(f"the link to {self._address} is closed")
            if self._connection is not None and not self._connection.lost.done():
                return self._connection
            self._changed.clear()
            await self._changed.wait()

    async def _connect(self) -> Connection:
        connection = await connect(self._address, self._purpose)
        try:
            await self._prepare(connection)
        except BaseException:
            connection.abandon()
            raise
        return connection

    async def _keep(self) -> None:
        assert self.failed is not None
        try:
            while True:
                await self._mend()
        except PenstockError as error:
            log.error("the broker will not have us back", reason=str(error))
            self.failed.set_result(error)
        except Exception as error:
            log.exception("a connection could not be prepared")
            self.failed.set_result(PenstockError(f"{type(error).__name__}: {error}"))
        finally:
            self._changed.set()

    async def _mend(self) -> None:
        """Wait until the connection is lost, and then have another."""
        assert self._connection is not None
        reason = await asyncio.shield(self._connection.lost)
        log.warning("connection lost, trying again", broker=str(self._address), reason=str(reason))
        self._connection = await patiently(self._connect, math.inf, _AWAY)
        self._changed.set()
        log.info("connected again", broker=str(self._address))
