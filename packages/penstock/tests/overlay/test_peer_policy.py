"""Who may link brokers, and what a linked broker may do: strangers that claim to be a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.permissions import Permission
from penstock.content.parser import parse_publication
from penstock.core.config import OverlaySettings
from penstock.core.errors import AccessRefused
from penstock.overlay.link_registry import PeerPolicy
from penstock.server import Broker
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from penstock.wire.padres.frames import (
    PROTOCOL_HEADER,
    CloseFrame,
    ConfirmFrame,
    MessageFrame,
    OpenFrame,
    PadresFrameReader,
    PeerRole,
    encode_frame,
)
from tests.overlay.conversation import PATIENCE
from tests.overlay.house import House, becomes, holds, pair, port_of, router_of, up, uri_of

SHUTDOWN = "[class,BROKER_CONTROL],[brokerID,{}],[command,'LIFECYCLE-SHUTDOWN']"
STOCK = "[class,eq,stock],[price,>,0]"


class Stranger:
    """A program that says it is broker B9, and keeps all it is told."""

    def __init__(self, name: str = "B9", user: str = "links", uri: str = "") -> None:
        self.name = name
        self._open = OpenFrame(
            PeerRole.BROKER, name, user=user, password=user, uri=uri, largest=1 << 22
        )
        self._uri = uri
        self._number = -1
        self.frames: list[Any] = []
        self._came = asyncio.Event()
        self._task: asyncio.Task[None]
        self._writer: asyncio.StreamWriter

    async def connect(self, broker: Broker) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        self._writer.write(PROTOCOL_HEADER + encode_frame(self._open))
        self._task = asyncio.create_task(self._read(reader))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        reader = PadresFrameReader(1 << 24)
        while data := await stream.read(65536):
            self.frames += reader.feed(data)
            self._came.set()

    async def until(self, kind: type) -> Any:
        """The first frame of a kind."""
        async with asyncio.timeout(PATIENCE):
            while not any(isinstance(one, kind) for one in self.frames):
                self._came.clear()
                await self._came.wait()
        return next(one for one in self.frames if isinstance(one, kind))

    async def say(self, text: str, kind: EnvelopeKind = EnvelopeKind.PUBLISH) -> None:
        """Return when the broker has taken it."""
        self._number += 2
        self.note(PadresEnvelope(kind, text, id=f"{self.name}-M{self._number}", durable=False))
        async with asyncio.timeout(PATIENCE):
            while ConfirmFrame(self._number) not in self.frames:
                self._came.clear()
                await self._came.wait()

    def note(self, envelope: PadresEnvelope) -> None:
        receipt = self._number if envelope.ttl != 0 else 0
        self._writer.write(encode_frame(MessageFrame(envelope, receipt)))

    async def link(self, broker: Broker) -> OpenFrame:
        """All the way, as a broker would; how the other introduced itself."""
        await self.connect(broker)
        opened: OpenFrame = await self.until(OpenFrame)
        for command in ("CONNECT_REQ", "CONNECT_ACK"):
            text = (
                f"[class,BROKER_CONTROL],[brokerID,'{opened.id}'],[command,'OVERLAY-{command}'],"
                f"[fromID,'{self.name}'],[fromURI,'{self._uri}'],[rules,'cycles OFF']"
            )
            self.note(PadresEnvelope(EnvelopeKind.PUBLISH, text, ttl=0, durable=False))
        await becomes(lambda: up(broker, *{self.name, *router_of(broker).neighbours}))
        return opened

    async def close(self) -> None:
        self._task.cancel()
        self._writer.close()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        yield House(tmp_path, stack)


@pytest.fixture
async def strangers() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def refused(stranger: Stranger, broker: Broker) -> str:
    """Why; nothing but that was said."""
    await stranger.connect(broker)
    closed = await stranger.until(CloseFrame)
    await stranger.close()
    assert [type(one) for one in stranger.frames] == [CloseFrame]
    assert not router_of(broker).neighbours
    return str(closed.reason)


async def linked(house: House, stack: AsyncExitStack, **more: Any) -> tuple[Broker, Stranger]:
    """B1, and B9 that is its neighbour and may command nothing."""
    broker = await house.broker("B1", **{"accept_commands_from": [], **more})
    stranger = Stranger(uri="padres://127.0.0.1:1/B9")
    stack.push_async_callback(stranger.close)
    await stranger.link(broker)
    return broker, stranger


# Who may link.


@pytest.mark.parametrize("tags", [(), ("administrator",)])
async def test_a_user_without_the_tag_is_no_broker(house: House, tags: tuple[str, ...]) -> None:
    broker = await house.broker("B1")
    broker.users.add("ada", "ada", tags)
    broker.users.set_permissions("ada", "/", Permission(".*", ".*", ".*"))
    assert "'ada' may not link brokers" in await refused(Stranger(user="ada"), broker)


async def test_the_tag_alone_does_not_make_a_neighbour(house: House) -> None:
    broker = await house.broker("B1", accept_links_from=["B2"])
    assert "broker B9 is not configured at B1" in await refused(Stranger(), broker)


async def test_a_user_may_be_tied_to_ids_of_brokers(house: House) -> None:
    broker = await house.broker("B1")
    broker.users.set_client_ids("links", "B[2-5]")
    assert "may not be broker 'B9'" in await refused(Stranger(), broker)


async def test_a_user_for_links_is_no_client(house: House) -> None:
    broker = await house.broker("B1")
    client = Stranger()
    client._open = OpenFrame(PeerRole.CLIENT, "c", user="links", password="links")
    assert "access to vhost '/' refused" in await refused(client, broker)


async def test_who_connects_is_not_shown_a_password(house: House) -> None:
    broker = await house.broker("B1")
    stranger = Stranger()
    opened = await stranger.link(broker)
    await stranger.close()
    assert (opened.user, opened.password) == ("", "")


async def test_a_link_ends_when_its_user_may_no_longer_have_it(
    house: House, strangers: AsyncExitStack
) -> None:
    broker, stranger = await linked(house, strangers)
    broker.users.set_tags("links", ())
    broker.overlay.check_users()
    assert "may not link brokers" in (await stranger.until(CloseFrame)).reason


async def test_without_a_user_to_connect_as_nothing_is_dialled(house: House) -> None:
    broker = await house.broker("B1", user="", password="")
    address = "padres://127.0.0.1:1/B2"
    broker.overlay.connect(address)
    assert "broker.overlay.user" in broker.overlay.links.refused[address]


# What is dialled.


async def test_an_address_that_a_peer_says_is_its_own_is_never_dialled(
    house: House, strangers: AsyncExitStack
) -> None:
    broker, stranger = await linked(house, strangers)
    await stranger.close()
    broker = await house.again(broker)
    assert set(router_of(broker).neighbours) == {"B9"}
    assert not broker.overlay.links._dialling


async def test_an_address_that_an_earlier_version_took_from_a_peer_is_not_dialled(
    house: House,
) -> None:
    broker = await house.broker("B1")
    broker.topology.put(("neighbour", "/", "B9"), {"uri": "padres://127.0.0.1:1/B9"})
    broker = await house.again(broker)
    assert set(router_of(broker).neighbours) == {"B9"}
    assert not broker.overlay.links._dialling


async def test_an_address_that_an_operator_gave_is_dialled_after_a_restart(house: House) -> None:
    first, second = await house.broker("B1"), await house.broker("B2")
    first.overlay.connect(uri_of(second))
    await becomes(lambda: up(first, "B2") and up(second, "B1"))
    first = await house.again(first)
    await becomes(lambda: up(first, "B2") and up(second, "B1"))


async def test_a_neighbour_s_command_dials_what_is_configured_alone(
    house: House, strangers: AsyncExitStack
) -> None:
    broker, stranger = await linked(house, strangers, accept_commands_from=["B9"])
    order = "[class,BROKER_CONTROL],[brokerID,B1],[command,'OVERLAY-CONNECT'],[broker,'{}']"
    await stranger.say(order.format("padres://127.0.0.1:1/B8"))
    assert not broker.overlay.links._dialling


# Commands.


async def test_a_neighbour_without_the_right_does_not_command(
    house: House, strangers: AsyncExitStack
) -> None:
    broker, stranger = await linked(house, strangers)
    await stranger.say(SHUTDOWN.format("B1"))
    await stranger.say("[class,BROKER_MONITOR],[brokerID,B1],[command,STOP]")
    await stranger.say("[class,GLOBAL_FD],[flag,'true']")
    assert not house.told_to_stop.is_set()
    assert not router_of(broker).next_hops.stopped
    assert broker.overlay.controller is not None
    assert not broker.overlay.controller.heartbeats.settings.enabled


async def test_a_neighbour_with_the_right_does(house: House, strangers: AsyncExitStack) -> None:
    _, stranger = await linked(house, strangers, accept_commands_from=["B9"])
    await stranger.say(SHUTDOWN.format("B1"))
    assert house.told_to_stop.is_set()


async def test_a_command_without_the_right_is_not_passed_on(
    house: House, strangers: AsyncExitStack
) -> None:
    """B2 takes commands from B1, which has to have checked them."""
    first, stranger = await linked(house, strangers)
    second = await house.broker("B2", uri_of(first))
    await becomes(lambda: up(second, "B1"))
    subscriber = await house.talker(second, "s")
    await stranger.say(
        "[class,eq,BROKER_CONTROL],[brokerID,isPresent,x],[command,isPresent,x]",
        EnvelopeKind.ADVERTISE,
    )
    await stranger.say(STOCK, EnvelopeKind.ADVERTISE)
    await subscriber.say(EnvelopeKind.SUBSCRIBE, STOCK)
    await becomes(lambda: holds(first, "B2", STOCK))
    assert holds(first, "B2", '[class,eq,BROKER_CONTROL],[brokerID,eq,"B2"]')
    await stranger.say(SHUTDOWN.format("B2"))
    await stranger.say("[class,stock],[price,45]")
    await subscriber.until(1)
    assert not house.told_to_stop.is_set()


async def test_an_operator_controls_the_broker_it_is_connected_to(house: House) -> None:
    first, _ = await pair(house)
    operator = await house.talker(first, "operator")
    await operator.say(
        EnvelopeKind.ADVERTISE,
        "[class,eq,BROKER_CONTROL],[brokerID,isPresent,x],[command,isPresent,x]",
    )
    await operator.say(EnvelopeKind.PUBLISH, SHUTDOWN.format("B1"))
    assert house.told_to_stop.is_set()


@pytest.mark.parametrize(
    "text",
    [
        "[class,HEARTBEAT_MANAGER],[brokerID,B1],[fromID,B2],[type,HEARTBEAT_ACK],[handle,1]",
        SHUTDOWN.format("B7"),
        "[class,BROKER_MONITOR],[brokerID,B1],[command,PUBLISH_BROKER_INFO]",
        "[class,'GLOBAL_FD'],[flag,'true']",
    ],
)
def test_what_a_neighbour_may_not_publish(text: str) -> None:
    policy = PeerPolicy(OverlaySettings(id="B1", accept_links_from=["B9"]))
    with pytest.raises(AccessRefused):
        policy.check_publication("B9", parse_publication(text))


@pytest.mark.parametrize(
    "text",
    [
        "[class,HEARTBEAT_MANAGER],[brokerID,B1],[fromID,B9],[type,HEARTBEAT_ACK],[handle,1]",
        "[class,HEARTBEAT_MANAGER],[detectorID,B3],[detectedID,B4],[type,FAILURE_DETECTED]",
        "[class,NETWORK_DISCOVERY]",
        "[class,BROKER_INFO],[brokerID,B3]",
        "[class,stock],[price,45]",
    ],
)
def test_what_a_neighbour_may_publish(text: str) -> None:
    PeerPolicy(OverlaySettings(id="B1")).check_publication("B9", parse_publication(text))


def test_a_neighbour_with_the_right_has_a_configured_address_dialled() -> None:
    address = "padres://ada:secret@127.0.0.1:7/B8"
    policy = PeerPolicy(OverlaySettings(id="B1", neighbours=[address], accept_commands_from=["B9"]))
    order = "[class,BROKER_CONTROL],[brokerID,B1],[command,'OVERLAY-CONNECT'],[broker,'{}']"
    same = parse_publication(order.format("padres://127.0.0.1:7/B8"))
    policy.check_publication("B9", same)
    with pytest.raises(AccessRefused, match=r"broker\.overlay\.neighbours"):
        policy.check_publication("B9", parse_publication(order.format("padres://127.0.0.1:8/B8")))
