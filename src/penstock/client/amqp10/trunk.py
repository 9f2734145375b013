"""A connection that mends itself.

A trunk keeps a wire connected for as long as it is open. When a connection goes, the parts that use
it are told; when the next is there each is given its session to go on with. A broker that will not
have us back ends the trunk with the reason.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from penstock.client.amqp10.endpoint import Endpoint
from penstock.client.amqp10.faults import Lost, fatal, unreachable
from penstock.client.amqp10.wire import Wire
from penstock.client.errors import BrokerUnreachable, FabricClosed
from penstock.client.patience import RECONNECT_SECONDS, patiently
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.wire.amqp10.links import Link
from penstock.wire.amqp10.session import Session

log = get_logger(__name__)


class Part(Protocol):
    """Whoever has a link on a trunk, and something to resume on the next connection."""

    def resume(self, session: Session) -> None:
        """There is a connection: attach."""

    def paused(self) -> None:
        """The connection went."""

    def failed(self, error: PenstockError) -> None:
        """There will be no other."""


class Trunk:
    def __init__(
        self, endpoint: Endpoint, purpose: str, tls: ssl.SSLContext | None, patience: float
    ) -> None:
        self.endpoint = endpoint
        self._container_id = endpoint.container_id + purpose
        self._tls = tls
        self._patience = patience
        self._parts: list[Part] = []
        self._wire: Wire | None = None
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._failure: PenstockError | None = None

    @property
    def relays(self) -> bool:
        return self._wire is not None and self._wire.relays

    async def open(self) -> None:
        async with self._opening:
            if self._failure is not None:
                raise self._failure
            if self._keeper is not None:
                return
            await patiently(self._connect, self._patience)
            self._keeper = asyncio.create_task(self._keep())

    async def join(self, part: Part) -> None:
        """Take part: from now on, the part has a link whenever there is a connection."""
        await self.open()
        if self._failure is not None:
            raise self._failure
        self.watch(part)
        if self._session is not None:
            part.resume(self._session)

    def watch(self, part: Part) -> None:
        """Be told what becomes of the connection."""
        self._parts.append(part)

    def leave(self, part: Part) -> None:
        if part in self._parts:
            self._parts.remove(part)

    async def parted(self, link: Link) -> None:
        """Returns when the broker knows that we have left a link."""
        if self._wire is not None:
            await self._wire.parted(link)

    async def close(self) -> None:
        self._fail(FabricClosed("the fabric is closed"))
        async with self._opening:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.gather(self._keeper, return_exceptions=True)
            if self._wire is not None:
                await self._wire.close()
            self._session = None

    def __str__(self) -> str:
        return str(self.endpoint)

    async def _connect(self) -> None:
        self._lost.clear()
        self._wire = wire = Wire(self.endpoint, self._container_id, self._on_lost)
        try:
            session = await wire.connect(self._tls)
        except (PenstockError, OSError, Lost) as error:
            wire.abandon()
            raise unreachable(self.endpoint, error) from error
        if self._lost.is_set():
            return
        self._session = session
        for part in list(self._parts):
            part.resume(session)

    async def _keep(self) -> None:
        while True:
            await self._lost.wait()
            if self._failure is not None:
                return
            try:
                await self._connect()
            except BrokerUnreachable:
                await asyncio.sleep(RECONNECT_SECONDS)
                self._lost.set()
            except PenstockError as error:
                self._fail(error)
                return
            else:
                log.info("connected again", broker=str(self))

    def _on_lost(self, lost: Lost) -> None:
        self._session = None
        for part in list(self._parts):
            part.paused()
        if (failure := fatal(self.endpoint, lost)) is not None:
            self._fail(failure)
        else:
            log.warning("connection lost, trying again", broker=str(self), reason=str(lost))
        self._lost.set()

    def _fail(self, error: PenstockError) -> None:
        if self._failure is None:
            self._failure = error
            for part in list(self._parts):
                part.failed(error)
