"""What a client publishes: answered once, counted, and refused where it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.permissions import TopicPermission
from penstock.wire.mqtt.fields import PUBACK, PUBCOMP, PUBREC, PUBREL
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import ReasonCode
from tests.protocols.mqtt.broker import MqttTestBroker

# Publishing.


async def test_a_publication_that_must_arrive_is_acknowledged(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    caller.publish("a", qos=1, number=9)
    assert await caller.until_answered(PUBACK) == [(9, 0)]


async def test_that_nobody_wants_it_is_told_from_5_0_on(house: MqttTestBroker) -> None:
    new, old = await house.connected("new"), await house.connected("old", version=4)
    for caller in (new, old):
        caller.publish("a", qos=1, number=9)
    assert new.acknowledgements(PUBACK) == [(9, ReasonCode.NO_MATCHING_SUBSCRIBERS)]
    assert old.acknowledgements(PUBACK) == [(9, 0)]


async def test_exactly_once_is_once_though_it_comes_again(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    for _ in range(3):
        caller.publish("a", qos=2, number=9)
    assert await caller.until_answered(PUBREC, 3) == [(9, 0)] * 3
    caller.acknowledge(PUBREL, 9)
    assert caller.acknowledgements(PUBCOMP) == [(9, 0)]
    assert len(caller.got) == 1
    caller.publish("a", qos=2, number=9)
    assert len(caller.got) == 2, "a released number is a new message's"


async def test_nothing_is_said_to_one_that_is_gone(house: MqttTestBroker) -> None:
    queue = house.stand.queue(durable=True)
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected(expiry=100)
    caller.publish("a", qos=1, number=1)
    caller.publish("a", qos=2, number=2)
    await caller.cut()
    written = len(caller.cable.written)
    await house.stand.synced()
    assert len(caller.cable.written) == written
    assert not house.kernel.write_batch.to_flush


async def test_a_clean_start_knows_no_numbers(house: MqttTestBroker) -> None:
    queue = house.stand.queue()
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected(expiry=100)
    caller.publish("a", b"first", qos=2, number=1)
    await caller.until_answered(PUBREC)
    await caller.cut()
    caller = await house.connected(clean=True, expiry=100)
    caller.publish("a", b"second", qos=2, number=1)
    await caller.until_answered(PUBREC)
    assert queue.message_count == 2


async def test_a_publication_the_disk_refused_is_not_acknowledged(tmp_path: Path) -> None:
    broken = [False]

    def sync(_: int) -> None:
        if broken[0]:
            raise OSError(5, "Input/output error")

    house = MqttTestBroker(tmp_path, sync=sync)
    queue = house.stand.queue(durable=True)
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected()
    broken[0] = True
    caller.publish("a", qos=1, number=1)
    assert await caller.until_answered(PUBACK) == [(1, ReasonCode.QUOTA_EXCEEDED)]
    broken[0] = False
    await house.close()


async def test_a_number_that_is_not_known_is_released_all_the_same(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.acknowledge(PUBREL, 9)
    assert caller.acknowledgements(PUBCOMP) == [(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


async def test_more_than_may_be_unanswered_ends_the_connection(tmp_path: Path) -> None:
    house = MqttTestBroker(tmp_path, mqtt={"receive_maximum": 2})
    caller = await house.connected()
    for number in (1, 2, 3):
        caller.publish("a", qos=2, number=number)
    assert await caller.until_closed() == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    await house.close()


async def test_what_was_one_too_many_is_taken_when_it_comes_again(tmp_path: Path) -> None:
    house = MqttTestBroker(tmp_path, mqtt={"receive_maximum": 2})
    queue = house.stand.queue()
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected(expiry=100)
    for number in (1, 2, 3):
        caller.publish("a", qos=2, number=number)
    await caller.until_closed()
    caller = await house.connected(clean=False, expiry=100)
    caller.publish("a", qos=2, number=3, duplicate=True)
    await caller.until_answered(PUBREC)
    assert queue.message_count == 3
    await house.close()


async def test_a_topic_may_have_a_short_name(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a/b")
    caller.publish("a/b", b"1", properties={MqttProperty.TOPIC_ALIAS: 3})
    caller.publish("", b"2", properties={MqttProperty.TOPIC_ALIAS: 3})
    assert [(one.topic, one.payload) for one in caller.got] == [(b"a/b", b"1"), (b"a/b", b"2")]


@pytest.mark.parametrize(
    ("alias", "reason"),
    [(65, ReasonCode.TOPIC_ALIAS_INVALID), (5, ReasonCode.PROTOCOL_ERROR)],
)
async def test_a_short_name_that_names_nothing(
    house: MqttTestBroker, alias: int, reason: ReasonCode
) -> None:
    caller = await house.connected()
    caller.publish("", properties={MqttProperty.TOPIC_ALIAS: alias})
    assert await caller.until_closed() == reason


# Permissions.


def allow(house: MqttTestBroker, write: str = ".*", read: str = ".*") -> None:
    permission = TopicPermission(write, read)
    house.users.set_topic_permissions("guest", "/", "amq.topic", permission)


async def test_a_publication_that_is_not_allowed_is_refused(house: MqttTestBroker) -> None:
    allow(house, write=r"^sensors\.7\.")
    queue = house.stand.queue()
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected()
    caller.publish("sensors/7/report", qos=1, number=1)
    caller.publish("sensors/8/report", qos=1, number=2)
    caller.publish("sensors/8/report", qos=2, number=3)
    caller.publish("sensors/8/report", qos=0)
    assert await caller.until_answered(PUBACK, 2) == [(1, 0), (2, ReasonCode.NOT_AUTHORIZED)]
    assert caller.acknowledgements(PUBREC) == [(3, ReasonCode.NOT_AUTHORIZED)]
    assert queue.message_count == 1
    assert not caller.cable.closing


async def test_3_1_1_has_no_word_for_it_and_is_closed(house: MqttTestBroker) -> None:
    allow(house, write="^ok$")
    caller = await house.connected(version=4)
    caller.publish("no", qos=1, number=1)
    await caller.until_closed()
    assert not caller.of(PUBACK)


async def test_a_subscription_that_is_not_allowed_is_refused(house: MqttTestBroker) -> None:
    allow(house, read="^ok$")
    caller = await house.connected()
    assert caller.subscribe("ok", "no", "$share/g/no") == [
        0,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.NOT_AUTHORIZED,
    ]


async def test_permissions_that_change_hold_for_those_who_are_connected(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected()
    caller.publish("a", qos=1, number=1)
    allow(house, write="^b$")
    caller.publish("a", qos=1, number=2)
    assert caller.acknowledgements(PUBACK)[-1] == (2, ReasonCode.NOT_AUTHORIZED)


async def test_a_user_that_is_deleted_publishes_and_subscribes_no_more(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected()
    caller.publish("a", qos=1, number=1)
    house.users.delete("guest")
    caller.publish("a", qos=1, number=2)
    assert caller.acknowledgements(PUBACK)[-1] == (2, ReasonCode.NOT_AUTHORIZED)
    assert caller.subscribe("a") == [ReasonCode.NOT_AUTHORIZED]
