"""A connection that mends itself: whoever uses it says what to do on each new one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.jobs.link.address import Address
from penstock.jobs.link.faults import Lost
from penstock.jobs.link.wire import Wire, connect

log = get_logger(__name__)

#: Between attempts to connect again: short, for most breaks are a broker's restart.
RECONNECT_SECONDS: Final = 0.5

#: Declares and consumes; done again on every new connection. It is lost by then, or for good, if
#: this raises.
Prepare = Callable[[Wire], Awaitable[None]]


class Link:
    """Opened once, closed once; between the two there is a connection most of the time."""

    def __init__(
        self, address: Address, purpose: str, prepare: Prepare, *, patience: float = 0.0
    ) -> None:
        self._address = address
        self._purpose = purpose
        self._prepare = prepare
        self._patience = patience
        self._wire: Wire | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self.failed: asyncio.Future[PenstockError] | None = None  #: why there will be no other

    async def open(self) -> None:
        """Returns when it is prepared; a broker that is away is waited for, for so long."""
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        deadline = loop.time() + self._patience
        while True:
            try:
                self._wire = await self._connect()
                break
            except (BrokerUnreachable, Lost):
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(RECONNECT_SECONDS)
        self._ready.set()
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._wire is not None:
            await self._wire.close()

    @property
    def connected(self) -> bool:
        return self._ready.is_set()

    async def wire(self) -> Wire:
        """The connection, as soon as there is one."""
        while True:
            assert self.failed is not None, "not opened"
            if self.failed.done():
                raise self.failed.result()
            if self._wire is not None and not self._wire.lost.done():
                return self._wire
            waiting = asyncio.ensure_future(self._ready.wait())
            await asyncio.wait((waiting, self.failed), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    async def _connect(self) -> Wire:
        wire = await connect(self._address, self._purpose)
        try:
            await self._prepare(wire)
        except BaseException:
            wire.abandon()
            raise
        return wire

    async def _keep(self) -> None:
        while True:
            assert self._wire is not None
            reason = await asyncio.shield(self._wire.lost)
            self._ready.clear()
            log.warning(
                "connection lost, trying again", broker=str(self._address), reason=str(reason)
            )
            while True:
                try:
                    self._wire = await self._connect()
                    break
                except (BrokerUnreachable, Lost):
                    await asyncio.sleep(RECONNECT_SECONDS)
                except PenstockError as error:
                    assert self.failed is not None
                    self.failed.set_result(error)
                    log.error("the broker will not have us back", reason=str(error))
                    return
            self._ready.set()
            log.info("connected again", broker=str(self._address))
