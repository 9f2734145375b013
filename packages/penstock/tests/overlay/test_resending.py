"""What a neighbour did not confirm is sent to it again, and what it has already it knows again.

The neighbour here is played by the test, frame by frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.broker.log.committer import Committer
from penstock.core.config import BrokerSettings, OverlaySettings
from penstock.overlay.persistence import Watermarks
from penstock.server import Broker
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from penstock.wire.padres.frames import (
    PROTOCOL_HEADER,
    ConfirmFrame,
    MessageFrame,
    OpenFrame,
    PadresFrame,
    PadresFrameReader,
    PeerRole,
    encode_frame,
)
from tests.overlay.conversation import PATIENCE, Talker
from tests.overlay.house import allow_links

STOCK = "[class,eq,stock],[price,>,0]"


class Neighbour:
    """B2, which connects to B1 and does as it is told."""

    def __init__(self, store: str = "store-1") -> None:
        self._store = store
        self._reader = PadresFrameReader(1 << 24)
        self._frames: list[PadresFrame] = []
        self._in: asyncio.StreamReader
        self._out: asyncio.StreamWriter

    async def connect(self, port: int) -> None:
        self._in, self._out = await asyncio.open_connection("127.0.0.1", port)
        introduction = OpenFrame(
            PeerRole.BROKER, "B2", store=self._store, user="links", password="links", wanted="B1"
        )
        self._out.write(PROTOCOL_HEADER + encode_frame(introduction))
        self.control("OVERLAY-CONNECT_REQ")
        await self.hear("OVERLAY-CONNECT_REQ")
        self.control("OVERLAY-CONNECT_ACK")
        await self.hear("OVERLAY-CONNECT_ACK")

    def control(self, command: str) -> None:
        text = f"[class,BROKER_CONTROL],[brokerID,B1],[command,'{command}'],[fromID,B2]"
        self.say(PadresEnvelope(EnvelopeKind.PUBLISH, text, ttl=0))

    def say(self, envelope: PadresEnvelope, receipt: int = 0) -> None:
        self._out.write(encode_frame(MessageFrame(envelope, receipt)))

    def confirm(self, note: MessageFrame) -> None:
        self._out.write(encode_frame(ConfirmFrame(note.receipt)))

    async def hear(self, wanted: str) -> MessageFrame:
        """The next note with this in its text."""
        while True:
            frame = await self._next()
            if isinstance(frame, MessageFrame) and wanted in frame.envelope.text:
                return frame

    async def confirmed(self) -> int:
        while True:
            frame = await self._next()
            if isinstance(frame, ConfirmFrame):
                return frame.receipt

    async def _next(self) -> PadresFrame:
        async with asyncio.timeout(PATIENCE):
            while not self._frames:
                data = await self._in.read(65536)
                assert data, "the broker has closed the link"
                self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    async def close(self) -> None:
        self._out.close()
        await self._out.wait_closed()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = BrokerSettings(
        listen=["padres://127.0.0.1:0"],
        overlay=OverlaySettings(id="B1", accept_links_from=["B2"]),
        drain_seconds=0.1,
    )
    allow_links(tmp_path)
    async with Broker(settings, data=tmp_path) as broker:
        yield broker


def port_of(broker: Broker) -> int:
    return int(broker.addresses[0].rpartition(":")[2])


async def test_what_was_not_confirmed_is_sent_again_with_the_same_receipt(broker: Broker) -> None:
    publisher = await Talker("p").connect(port_of(broker))
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    neighbour = Neighbour()
    await neighbour.connect(port_of(broker))
    subscription = PadresEnvelope(EnvelopeKind.SUBSCRIBE, "[class,eq,stock]", id="B2-M1")
    neighbour.say(subscription)
    wanted = broker.overlay.routing("/").tables.subscriptions
    async with asyncio.timeout(PATIENCE):
        while ("B2-M1", "B2") not in wanted:  # noqa: ASYNC110 - brokers tell nobody
            await asyncio.sleep(0.01)
    for price in (1, 2, 3):
        await publisher.say(EnvelopeKind.PUBLISH, f"[class,stock],[price,{price}]")
    first = [await neighbour.hear("[class,stock]") for _ in range(3)]
    neighbour.confirm(first[0])
    await neighbour.close()
    again = Neighbour()
    await again.connect(port_of(broker))
    again.say(subscription)
    second = [await again.hear("[class,stock]") for _ in range(2)]
    sent = [(note.receipt, note.envelope.text) for note in first]
    assert [(note.receipt, note.envelope.text) for note in second] in (sent[:2], sent[1:])
    await again.close()
    await publisher.close()


async def test_what_was_taken_already_is_confirmed_and_not_taken_twice(broker: Broker) -> None:
    subscriber = await Talker("s", durable=True).connect(port_of(broker))
    await subscriber.say(EnvelopeKind.SUBSCRIBE, "[class,eq,stock]")
    first = Neighbour()
    await first.connect(port_of(broker))
    publication = PadresEnvelope(EnvelopeKind.PUBLISH, "[class,stock],[price,1]", id="B2-M7")
    first.say(publication, receipt=2)
    assert await first.confirmed() == 2
    await first.close()
    again = Neighbour()
    await again.connect(port_of(broker))
    again.say(publication, receipt=2)
    assert await again.confirmed() == 2
    again.say(
        PadresEnvelope(EnvelopeKind.PUBLISH, "[class,stock],[price,2]", id="B2-M8"), receipt=4
    )
    assert await again.confirmed() == 4
    got = await subscriber.until(2)
    assert [one.id for one in got] == ["B2-M7", "B2-M8"]
    await again.close()
    await subscriber.close()


async def test_a_neighbour_that_lost_its_data_counts_from_the_start(broker: Broker) -> None:
    subscriber = await Talker("s", durable=True).connect(port_of(broker))
    await subscriber.say(EnvelopeKind.SUBSCRIBE, "[class,eq,stock]")
    for store, identity in (("store-1", "B2-M7"), ("store-2", "B2-M9")):
        neighbour = Neighbour(store)
        await neighbour.connect(port_of(broker))
        publication = PadresEnvelope(EnvelopeKind.PUBLISH, "[class,stock],[price,1]", id=identity)
        neighbour.say(publication, receipt=2)
        assert await neighbour.confirmed() == 2
        await neighbour.close()
    assert [one.id for one in await subscriber.until(2)] == ["B2-M7", "B2-M9"]
    await subscriber.close()


async def test_what_is_not_in_the_language_is_dropped_and_the_link_stays(broker: Broker) -> None:
    subscriber = await Talker("s").connect(port_of(broker))
    await subscriber.say(EnvelopeKind.SUBSCRIBE, "[class,eq,stock]")
    neighbour = Neighbour()
    await neighbour.connect(port_of(broker))
    neighbour.say(PadresEnvelope(EnvelopeKind.PUBLISH, "[klass,stock", id="B2-M1"), receipt=2)
    neighbour.say(PadresEnvelope(EnvelopeKind.SUBSCRIBE, "nonsense", id="B2-M2"))
    assert await neighbour.confirmed() == 2
    neighbour.say(PadresEnvelope(EnvelopeKind.PUBLISH, "[class,stock]", id="B2-M3"), receipt=4)
    assert [one.id for one in await subscriber.until(1)] == ["B2-M3"]
    await neighbour.close()
    await subscriber.close()


async def test_marks_are_there_after_a_restart_for_the_same_store_alone(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    committer = Committer(loop, on_fault=lambda _: None, on_recovered=lambda: None)
    marks = Watermarks(tmp_path, committer)
    marks.of("B2", "one").move(42)
    committer.write()
    await committer.close()
    marks.close()
    after = Watermarks(tmp_path, committer)
    assert after.of("B2", "one").number == 42
    assert after.of("B2", "other").number == 0
    after.close()
