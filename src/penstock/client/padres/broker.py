"""A broker as one client has it: a connection that mends itself, and what was asked for over it.

What was advertised and subscribed to is asked for again on the next connection, unless the broker
still has it; what was noted and not answered is said again. The id a program was given stays good,
whatever the broker calls it now.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from penstock.client.errors import BrokerUnreachable, FabricClosed
from penstock.client.padres.endpoint import Endpoint
from penstock.client.padres.faults import Lost, fatal, unreachable
from penstock.client.padres.inbox import Reading
from penstock.client.padres.wire import Wire
from penstock.client.patience import RECONNECT_SECONDS, patiently
from penstock.core.errors import NotFound, PenstockError
from penstock.core.logs import get_logger
from penstock.wire.padres.envelope import Envelope, Kind
from penstock.wire.padres.frames import Open

_UNDO: Final = {
    Kind.ADVERTISE: Kind.UNADVERTISE,
    Kind.SUBSCRIBE: Kind.UNSUBSCRIBE,
    Kind.COMPOSITE: Kind.UNCOMPOSITE,
}

log = get_logger(__name__)


@dataclass(slots=True)
class Asked:
    """An advertisement or a subscription."""

    id: str  #: as the program knows it
    envelope: Envelope
    now: str  #: as the broker calls it


#: Takes what the broker of this id has brought.
Take = Callable[[str, Envelope, Reading, int], None]


class Broker:
    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        *,
        lasting: bool,
        attentive: bool,
        tls: ssl.SSLContext | None,
        take: Take,
        failed: Callable[[Broker, PenstockError], None],
    ) -> None:
        self.endpoint = endpoint
        self.asked: dict[str, Asked] = {}
        self.client_id = client_id
        self.welcome: Open | None = None  #: what the broker said of itself last
        self._run = uuid4().hex  # by which the broker knows that it is we who come again
        self._lasting = lasting
        self._attentive = attentive
        self._tls = tls
        self._take = take
        self._failed = failed
        self._wire: Wire | None = None
        self._reading: Reading | None = None
        self._ready = asyncio.Event()  # there is a connection on which all is asked for
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._failure: PenstockError | None = None

    @property
    def id(self) -> str:
        assert self.welcome is not None, "known once it is open"
        return self.welcome.id

    @property
    def connected(self) -> bool:
        return self._ready.is_set()

    async def open(self, patience: float) -> None:
        await patiently(self._connect, patience)
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._failure is None:
            self._failure = FabricClosed("the broker was left")
            self._ready.set()  # for those who wait, to be told
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._wire is not None:
            if self._reading is not None:
                self._reading.tell()
            await self._wire.close()

    # What is said.

    async def ask(self, envelope: Envelope) -> str:
        """Advertise or subscribe; returns the id."""
        id_ = await self.say(envelope)
        self.asked[id_] = Asked(id_, envelope, id_)
        return id_

    async def undo(self, id_: str) -> None:
        asked = self.asked.pop(id_, None)
        if asked is None:
            raise NotFound(f"nothing of this client at {self.id} has the id {id_!r}")
        while True:
            wire = await self._connected()
            with suppress(Lost):
                await wire.note(Envelope(_UNDO[asked.envelope.kind], asked.now))
                return

    async def say(self, envelope: Envelope) -> str:
        """Again on the next connection for as long as connections break before the answer."""
        while True:
            wire = await self._connected()
            with suppress(Lost):
                return await wire.note(envelope)

    async def room(self) -> None:
        await (await self._connected()).room()

    async def _connected(self) -> Wire:
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        assert self._wire is not None
        return self._wire

    # Connecting.

    async def _connect(self) -> None:
        self._lost.clear()

        def on_note(envelope: Envelope, receipt: int) -> None:
            assert wire.welcome is not None, "the reader sees to it"
            self._take(wire.welcome.id, envelope, reading, receipt)

        wire = Wire(self.endpoint, on_note, self._on_lost)
        reading = self._reading = Reading(wire.confirm)
        try:
            self.welcome = await wire.connect(
                self.client_id,
                self._run,
                lasting=self._lasting,
                attentive=self._attentive,
                tls=self._tls,
            )
            self.client_id = self.welcome.wanted  # the one we have got
            if not self.welcome.lasting:
                for asked in list(self.asked.values()):
                    asked.now = await wire.note(asked.envelope)
        except (PenstockError, OSError, Lost) as error:
            wire.abandon()
            raise unreachable(self.endpoint, error) from error
        if not self._lost.is_set():
            self._wire = wire
            self._ready.set()

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
                log.info("connected again", broker=str(self.endpoint))

    def _on_lost(self, lost: Lost) -> None:
        self._ready.clear()
        failure = fatal(lost)
        if failure is not None:
            self._fail(failure)
        else:
            reason = str(lost)
            log.warning("connection lost, trying again", broker=str(self.endpoint), reason=reason)
        self._lost.set()

    def _fail(self, error: PenstockError) -> None:
        if self._failure is None:
            self._failure = error
            self._failed(self, error)
            self._ready.set()  # for those who wait, to be told
