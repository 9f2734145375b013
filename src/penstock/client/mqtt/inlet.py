"""Receiving across reconnects.

Between the socket and the program lies a buffer. When it is as long as the prefetch, the broker is
held up until half of it is taken. Over a break, what the broker sends again because the session
was kept is dropped from the buffer; else what is there is all there is of it, and stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from paho.mqtt.client import MQTTMessage

from penstock.client.arrivals import Arrivals
from penstock.client.errors import FabricClosed
from penstock.client.message import Message
from penstock.client.mqtt.delivery import Delivery, Receipt, read_message
from penstock.client.mqtt.session import Session
from penstock.core.errors import PenstockError


class Inlet:
    """Keeps `penstock.client.inflow.Inlet`."""

    def __init__(
        self,
        session: Session,
        patterns: Sequence[str],
        *,
        qos: int,
        prefetch: int,
        owns: bool = False,
    ) -> None:
        self._session = session
        self._patterns = patterns
        self._qos = qos
        self._prefetch = prefetch
        self._owns = owns  #: the session is for this inlet alone, and ends with it
        self._arrivals: Arrivals[tuple[MQTTMessage, Receipt | None]] = Arrivals()
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._arrivals.check()
        if self._opening is None:
            adding = self._session.subscriptions.add(self, self._patterns, self._qos)
            self._opening = asyncio.create_task(adding)
        try:
            await asyncio.shield(self._opening)
        except PenstockError as error:
            self.failed(error)
            self._session.subscriptions.remove(self)
        self._arrivals.check()

    async def receive(self) -> Message:
        await self.open()
        packet, receipt = await self._arrivals.take()
        if len(self._arrivals) * 2 <= self._prefetch:
            self._session.link.release(self)
        return read_message(packet, Delivery(packet, receipt, self._session.outlet))

    async def close(self) -> None:
        self.failed(FabricClosed("the fabric was closed"))
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self._session.subscriptions.remove(self)
        self._session.link.release(self)
        self._arrivals.clear()
        if self._owns:
            await self._session.close()

    def take(self, packet: MQTTMessage, receipt: Receipt | None) -> None:
        self._arrivals.put((packet, receipt))
        if len(self._arrivals) >= self._prefetch:
            self._session.link.hold(self)

    def renewed(self, session_present: bool) -> None:
        if session_present:
            self._arrivals.keep(lambda arrival: arrival[1] is None)
            self._session.link.release(self)

    def failed(self, error: PenstockError) -> None:
        self._arrivals.fail(error)
