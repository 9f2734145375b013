"""Who is let in, and how the rest are turned away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.permissions import Permission
from penstock.wire.mqtt.fields import CONNACK, PUBACK, PUBREL, SUBACK
from penstock.wire.mqtt.packets import ConnectPacket, SubscriptionRequest, encode_acknowledgement
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import ReasonCode
from tests import mqtt_wire
from tests.protocols.mqtt.broker import MqttTestBroker, published

EVERYTHING = Permission(".*", ".*", ".*")


async def test_a_stranger_who_says_nothing_is_cut_off(house: MqttTestBroker) -> None:
    caller = house.caller()
    house.clock.advance(house.kernel.settings.handshake_timeout)
    assert await caller.until_closed() is None
    assert not caller.cable.written
    assert not house.clients


async def test_a_client_that_is_in_is_not_hurried(house: MqttTestBroker) -> None:
    caller = await house.connected()
    house.clock.advance(1000)
    assert not caller.cable.closing


@pytest.mark.parametrize(
    "packet",
    [
        mqtt_wire.PINGREQ,
        mqtt_wire.DISCONNECT,
        published(4, "a"),
        published(4, "a", qos=1, number=1),
        encode_acknowledgement(PUBACK, 1),
        encode_acknowledgement(PUBREL, 1),
        mqtt_wire.subscribe(4, 1, [SubscriptionRequest("a", 0)]),
    ],
)
async def test_the_first_packet_is_connect(house: MqttTestBroker, packet: bytes) -> None:
    caller = house.caller()
    caller.say(packet)
    assert await caller.until_closed() is None
    assert not caller.cable.written


async def test_there_is_no_second_connect(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.say(mqtt_wire.connect(ConnectPacket(5, "c", True, 0)))
    assert await caller.until_closed() == ReasonCode.PROTOCOL_ERROR


async def test_what_follows_connect_in_the_same_read_waits_until_the_client_is_in(
    house: MqttTestBroker,
) -> None:
    caller = house.caller()
    caller.say(
        mqtt_wire.connect(ConnectPacket(5, "c", True, 0)),
        mqtt_wire.subscribe(5, 1, [SubscriptionRequest("a", 0)]),
        published(5, "a"),
    )
    await caller.until_got(1)
    assert [first >> 4 for first, _ in caller.packets] == [CONNACK, SUBACK, 3]


async def test_a_stranger_is_not_read_from_while_its_password_is_checked(
    house: MqttTestBroker,
) -> None:
    caller = house.caller()
    who = ConnectPacket(5, "c", True, 0, "guest", b"guest")
    caller.say(mqtt_wire.connect(who))
    assert not caller.cable.reading
    await caller.hear(CONNACK)
    assert caller.cable.reading


async def test_a_wrong_password_is_refused(house: MqttTestBroker) -> None:
    caller = house.caller()
    _, reason, _ = await caller.connect(username="guest", password=b"wrong")
    assert reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    await caller.until_closed()
    assert not house.clients


@pytest.fixture
async def nameless(tmp_path: Path) -> AsyncIterator[MqttTestBroker]:
    """A house as it is when nobody has set anything."""
    house = MqttTestBroker(tmp_path, anonymous_user="anonymous")
    yield house
    await house.close()


async def test_nobody_comes_in_without_a_name_from_elsewhere(house: MqttTestBroker) -> None:
    caller = house.caller(peer=("192.0.2.1", 4000))
    _, reason, _ = await caller.connect()
    assert reason == ReasonCode.NOT_AUTHORIZED


async def test_nobody_comes_in_without_a_name_where_the_user_for_it_is_gone(
    nameless: MqttTestBroker,
) -> None:
    nameless.users.delete("anonymous")
    _, reason, told = await nameless.caller().connect()
    assert reason == ReasonCode.NOT_AUTHORIZED
    assert "broker.anonymous_user" in told[MqttProperty.REASON_STRING]


async def test_who_gives_no_name_is_no_administrator(nameless: MqttTestBroker) -> None:
    caller = await nameless.connected()
    user = caller.terminal.access.user
    assert (user.name, user.tags) == ("anonymous", ())
    assert nameless.users.is_allowed(user, "/", "write", "amq.topic")
    assert nameless.users.is_allowed(user, "/", "read", "amq.topic")
    for name in ("amq.direct", "amq.default", "content", "orders", "my.amq.topic", "amq.topics"):
        for kind in ("configure", "write", "read"):
            assert not nameless.users.is_allowed(user, "/", kind, name)
    assert not nameless.users.is_allowed(user, "/", "configure", "amq.topic")


async def test_nobody_logs_in_as_the_user_of_those_without_a_name(house: MqttTestBroker) -> None:
    for password in (b"", b"anonymous", None):
        _, reason, _ = await house.caller().connect(username="anonymous", password=password)
        assert reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def test_over_websocket_a_name_is_needed(house: MqttTestBroker) -> None:
    caller = house.caller()
    caller.cable.websocket = "mqtt"
    _, reason, _ = await caller.connect()
    assert reason == ReasonCode.NOT_AUTHORIZED


async def test_a_client_id_may_be_tied_to_a_user(house: MqttTestBroker) -> None:
    house.users.add("sensor", "secret", client_ids="^sensor-7$")
    house.users.set_permissions("sensor", "/", EVERYTHING)
    who: dict[str, Any] = {"username": "sensor", "password": b"secret"}
    _, reason, _ = await house.caller().connect("sensor-8", **who)
    assert reason == ReasonCode.NOT_AUTHORIZED
    _, reason, _ = await house.caller().connect("sensor-7", **who)
    assert reason == 0


async def test_a_user_name_may_begin_with_a_virtual_host(house: MqttTestBroker) -> None:
    caller = house.caller()
    _, reason, _ = await caller.connect(username="/:guest", password=b"guest")
    assert reason == 0
    _, reason, _ = await house.caller().connect("d", username="no:guest", password=b"guest")
    assert reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def test_a_client_that_goes_while_its_password_is_checked_leaves_nothing(
    house: MqttTestBroker,
) -> None:
    caller = house.caller()
    caller.say(mqtt_wire.connect(ConnectPacket(5, "c", True, 0, "guest", b"guest")))
    await caller.cut()
    other = await house.connected("other", username="guest", password=b"guest")
    assert not caller.cable.written
    assert list(house.clients) == [other.terminal]
    assert list(house.mqtt.sessions(house.vhost).clients) == ["other"]


async def test_a_broker_that_stops_lets_nobody_in(house: MqttTestBroker) -> None:
    house.draining = True
    _, reason, _ = await house.caller().connect()
    assert reason == ReasonCode.SERVER_SHUTTING_DOWN


async def test_a_fault_while_coming_in_ends_the_connection(
    house: MqttTestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(house.vhost, "declare_queue", full)
    caller = house.caller()
    caller.say(
        mqtt_wire.connect(
            ConnectPacket(5, "c", True, 0, properties={MqttProperty.SESSION_EXPIRY: 9})
        )
    )
    await caller.until_closed()
    assert not house.mqtt.sessions(house.vhost).clients
