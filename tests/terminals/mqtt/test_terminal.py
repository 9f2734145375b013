"""The terminal: who is let in, what may come when, and how a connection ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.broker.permissions import Permission, TopicPermission
from penstock.terminals.mqtt.connect import Connect
from penstock.terminals.mqtt.encode import acknowledgement, auth
from penstock.terminals.mqtt.fields import (
    CONNACK,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
)
from penstock.terminals.mqtt.packets import Subscription
from penstock.terminals.mqtt.properties import Property
from penstock.terminals.mqtt.reasons import Reason
from tests import mqtt_wire
from tests.terminals.mqtt.house import Caller, House, published

EVERYTHING = Permission(".*", ".*", ".*")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    yield house
    await house.close()


# Coming in.


async def test_a_stranger_who_says_nothing_is_cut_off(house: House) -> None:
    caller = house.caller()
    house.clock.advance(house.kernel.settings.handshake_timeout)
    assert await caller.until_closed() is None
    assert not caller.cable.written
    assert not house.clients


async def test_a_client_that_is_in_is_not_hurried(house: House) -> None:
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
        acknowledgement(PUBACK, 1),
        acknowledgement(PUBREL, 1),
        mqtt_wire.subscribe(4, 1, [Subscription("a", 0)]),
    ],
)
async def test_the_first_packet_is_connect(house: House, packet: bytes) -> None:
    caller = house.caller()
    caller.say(packet)
    assert await caller.until_closed() is None
    assert not caller.cable.written


async def test_there_is_no_second_connect(house: House) -> None:
    caller = await house.connected()
    caller.say(mqtt_wire.connect(Connect(5, "c", True, 0)))
    assert await caller.until_closed() == Reason.PROTOCOL_ERROR


async def test_what_follows_connect_in_the_same_read_waits_until_the_client_is_in(
    house: House,
) -> None:
    caller = house.caller()
    caller.say(
        mqtt_wire.connect(Connect(5, "c", True, 0)),
        mqtt_wire.subscribe(5, 1, [Subscription("a", 0)]),
        published(5, "a"),
    )
    await caller.until_got(1)
    assert [first >> 4 for first, _ in caller.packets] == [CONNACK, SUBACK, 3]


async def test_a_stranger_is_not_read_from_while_its_password_is_checked(house: House) -> None:
    caller = house.caller()
    who = Connect(5, "c", True, 0, "guest", b"guest")
    caller.say(mqtt_wire.connect(who))
    assert not caller.cable.reading
    await caller.hear(CONNACK)
    assert caller.cable.reading


async def test_a_wrong_password_is_refused(house: House) -> None:
    caller = house.caller()
    _, reason, _ = await caller.connect(username="guest", password=b"wrong")
    assert reason == Reason.BAD_USER_NAME_OR_PASSWORD
    await caller.until_closed()
    assert not house.clients


async def test_nobody_comes_in_without_a_name_from_elsewhere(house: House) -> None:
    caller = house.caller(peer=("192.0.2.1", 4000))
    _, reason, _ = await caller.connect()
    assert reason == Reason.NOT_AUTHORIZED


async def test_nobody_comes_in_without_a_name_where_guest_is_gone(house: House) -> None:
    house.users.delete("guest")
    _, reason, _ = await house.caller().connect()
    assert reason == Reason.NOT_AUTHORIZED


async def test_a_client_id_may_be_tied_to_a_user(house: House) -> None:
    house.users.add("sensor", "secret", client_ids="^sensor-7$")
    house.users.set_permissions("sensor", "/", EVERYTHING)
    who = {"username": "sensor", "password": b"secret"}
    _, reason, _ = await house.caller().connect("sensor-8", **who)
    assert reason == Reason.NOT_AUTHORIZED
    _, reason, _ = await house.caller().connect("sensor-7", **who)
    assert reason == 0


async def test_a_user_name_may_begin_with_a_virtual_host(house: House) -> None:
    caller = house.caller()
    _, reason, _ = await caller.connect(username="/:guest", password=b"guest")
    assert reason == 0
    _, reason, _ = await house.caller().connect("d", username="no:guest", password=b"guest")
    assert reason == Reason.BAD_USER_NAME_OR_PASSWORD


async def test_a_client_that_goes_while_its_password_is_checked_leaves_nothing(
    house: House,
) -> None:
    caller = house.caller()
    caller.say(mqtt_wire.connect(Connect(5, "c", True, 0, "guest", b"guest")))
    await caller.cut()
    other = await house.connected("other", username="guest", password=b"guest")
    assert not caller.cable.written
    assert list(house.clients) == [other.terminal]
    assert list(house.mqtt.sessions(house.vhost).clients) == ["other"]


async def test_a_broker_that_stops_lets_nobody_in(house: House) -> None:
    house.draining = True
    _, reason, _ = await house.caller().connect()
    assert reason == Reason.SERVER_SHUTTING_DOWN


async def test_a_fault_while_coming_in_ends_the_connection(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(house.vhost, "declare_queue", full)
    caller = house.caller()
    caller.say(mqtt_wire.connect(Connect(5, "c", True, 0, properties={Property.SESSION_EXPIRY: 9})))
    await caller.until_closed()
    assert not house.mqtt.sessions(house.vhost).clients


# Keeping alive.


async def test_silence_beyond_what_was_agreed_ends_the_connection(house: House) -> None:
    caller = await house.connected(keep_alive=10)
    house.clock.advance(14.9)
    assert not caller.cable.closing
    house.clock.advance(0.2)
    assert await caller.until_closed() == Reason.KEEP_ALIVE_TIMEOUT


async def test_any_packet_is_a_sign_of_life(house: House) -> None:
    caller = await house.connected(keep_alive=10)
    for _ in range(5):
        house.clock.advance(14)
        caller.publish("a")
    assert not caller.cable.closing


async def test_a_ping_is_answered(house: House) -> None:
    caller = await house.connected()
    caller.say(mqtt_wire.PINGREQ)
    assert caller.of(PINGRESP)


async def test_who_is_not_read_from_is_not_taken_for_dead(house: House) -> None:
    caller = await house.connected(keep_alive=10)
    caller.publish("a")
    house.alarms.sound("disk", "full")
    assert not caller.cable.reading
    house.clock.advance(100)
    assert not caller.cable.closing
    house.alarms.clear("disk")
    house.clock.advance(7)
    assert not caller.cable.closing, "it has just become possible to hear it"


# Out of place.


@pytest.mark.parametrize(
    "packet",
    [b"\x20\x03\x00\x00\x00", b"\x90\x04\x00\x01\x00\x00", b"\xd0\x00", auth(0x18)],
    ids=["CONNACK", "SUBACK", "PINGRESP", "AUTH"],
)
async def test_packets_that_are_not_a_clients_end_the_connection(
    house: House, packet: bytes
) -> None:
    caller = await house.connected()
    caller.say(packet)
    assert await caller.until_closed() == Reason.PROTOCOL_ERROR


async def test_3_1_1_is_closed_without_a_word(house: House) -> None:
    caller = await house.connected(version=4)
    written = len(caller.cable.written)
    caller.say(b"\xd0\x00")
    await caller.until_closed()
    assert len(caller.cable.written) == written


async def test_a_client_that_does_not_want_reasons_gets_none(house: House) -> None:
    caller = await house.connected(request_problem_information=0)
    caller.say(b"\xd0\x00")
    await caller.until_closed()
    assert caller.packets[-1] == (0xE0, bytes((Reason.PROTOCOL_ERROR,)))


# Publishing.


async def test_a_publication_that_must_arrive_is_acknowledged(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    caller.publish("a", qos=1, number=9)
    assert await caller.until_answered(PUBACK) == [(9, 0)]


async def test_that_nobody_wants_it_is_told_from_5_0_on(house: House) -> None:
    new, old = await house.connected("new"), await house.connected("old", version=4)
    for caller in (new, old):
        caller.publish("a", qos=1, number=9)
    assert new.answers(PUBACK) == [(9, Reason.NO_MATCHING_SUBSCRIBERS)]
    assert old.answers(PUBACK) == [(9, 0)]


async def test_exactly_once_is_once_though_it_comes_again(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    for _ in range(3):
        caller.publish("a", qos=2, number=9)
    assert await caller.until_answered(PUBREC, 3) == [(9, 0)] * 3
    caller.acknowledge(PUBREL, 9)
    assert caller.answers(PUBCOMP) == [(9, 0)]
    assert len(caller.got) == 1
    caller.publish("a", qos=2, number=9)
    assert len(caller.got) == 2, "a released number is a new message's"


async def test_a_number_that_is_not_known_is_released_all_the_same(house: House) -> None:
    caller = await house.connected()
    caller.acknowledge(PUBREL, 9)
    assert caller.answers(PUBCOMP) == [(9, Reason.PACKET_IDENTIFIER_NOT_FOUND)]


async def test_more_than_may_be_unanswered_ends_the_connection(tmp_path: Path) -> None:
    house = House(tmp_path, mqtt={"receive_maximum": 2})
    caller = await house.connected()
    for number in (1, 2, 3):
        caller.publish("a", qos=2, number=number)
    assert await caller.until_closed() == Reason.RECEIVE_MAXIMUM_EXCEEDED
    await house.close()


async def test_what_was_one_too_many_is_taken_when_it_comes_again(tmp_path: Path) -> None:
    house = House(tmp_path, mqtt={"receive_maximum": 2})
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


async def test_a_topic_may_have_a_short_name(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a/b")
    caller.publish("a/b", b"1", properties={Property.TOPIC_ALIAS: 3})
    caller.publish("", b"2", properties={Property.TOPIC_ALIAS: 3})
    assert [(one.topic, one.payload) for one in caller.got] == [(b"a/b", b"1"), (b"a/b", b"2")]


@pytest.mark.parametrize(
    ("alias", "reason"),
    [(65, Reason.TOPIC_ALIAS_INVALID), (5, Reason.PROTOCOL_ERROR)],
)
async def test_a_short_name_that_names_nothing(house: House, alias: int, reason: Reason) -> None:
    caller = await house.connected()
    caller.publish("", properties={Property.TOPIC_ALIAS: alias})
    assert await caller.until_closed() == reason


# Delivery.


async def test_an_answer_of_the_wrong_kind_ends_the_connection(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=2)
    caller.publish("a", qos=2, number=1)
    caller.acknowledge(PUBACK, caller.got[0].number)
    assert await caller.until_closed() == Reason.PROTOCOL_ERROR


async def test_a_message_is_not_complete_before_it_was_received(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=2)
    caller.publish("a", qos=2, number=1)
    caller.acknowledge(PUBCOMP, caller.got[0].number)
    assert await caller.until_closed() == Reason.PROTOCOL_ERROR


async def test_answers_to_nothing_are_passed_over(house: House) -> None:
    caller = await house.connected()
    caller.acknowledge(PUBACK, 9)
    caller.acknowledge(PUBCOMP, 9)
    caller.acknowledge(PUBREC, 9)
    assert caller.answers(PUBREL) == [(9, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
    assert not caller.cable.closing


async def test_no_more_is_out_than_the_client_takes(house: House) -> None:
    caller = await house.connected(receive_maximum=2)
    caller.subscribe("a", qos=1)
    for number in range(1, 6):
        caller.publish("a", b"%d" % number, qos=1, number=number)
    assert caller.payloads == [b"1", b"2"]
    caller.answer(caller.got[1])
    assert caller.payloads == [b"1", b"2", b"3"]


async def test_a_refusal_is_an_answer(house: House) -> None:
    caller = await house.connected(receive_maximum=1)
    caller.subscribe("a", qos=2)
    caller.publish("a", b"1", qos=1, number=1)
    caller.publish("a", b"2", qos=2, number=2)
    caller.publish("a", b"3", qos=2, number=3)
    caller.acknowledge(PUBACK, caller.got[0].number, Reason.UNSPECIFIED_ERROR)
    caller.acknowledge(PUBREC, caller.got[1].number, Reason.QUOTA_EXCEEDED)
    assert caller.payloads == [b"1", b"2", b"3"]


async def test_the_time_a_message_waited_is_taken_off_what_it_has(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=1)
    caller.terminal.pause_writing()
    lives: dict[Property, int] = {Property.MESSAGE_EXPIRY: 100}
    caller.publish("a", b"must", qos=1, number=1, properties=lives)
    caller.publish("a", b"may", properties=lives)
    house.clock.advance(30)
    caller.terminal.resume_writing()
    assert [one.properties[Property.MESSAGE_EXPIRY] for one in caller.got] == [70, 70]


async def test_what_expires_while_it_waits_is_not_delivered(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=1)
    caller.terminal.pause_writing()
    caller.publish("a", b"1", qos=1, number=1, properties={Property.MESSAGE_EXPIRY: 5})
    caller.publish("a", b"2", qos=1, number=2)
    house.clock.advance(5)
    caller.terminal.resume_writing()
    assert caller.payloads == [b"2"]


async def test_topics_get_short_names_as_far_as_the_client_takes_them(house: House) -> None:
    caller = await house.connected(topic_alias_maximum=1)
    caller.subscribe("#")
    for topic in ("a", "a", "b", "b"):
        caller.publish(topic)
    assert [(one.topic, one.properties) for one in caller.got] == [
        (b"a", {Property.TOPIC_ALIAS: 1}),
        (b"", {Property.TOPIC_ALIAS: 1}),
        (b"b", {}),
        (b"b", {}),
    ]


async def test_a_short_name_that_was_not_told_is_not_used(house: House) -> None:
    """The message that would have introduced it was too large for the client."""
    caller = await house.connected(topic_alias_maximum=5, maximum_packet_size=100)
    caller.subscribe("a")
    caller.publish("a", b"." * 200)
    caller.publish("a", b"small")
    (message,) = caller.got
    assert message.topic == b"a"


# Permissions.


def allow(house: House, write: str = ".*", read: str = ".*") -> None:
    permission = TopicPermission(write, read)
    house.users.set_topic_permissions("guest", "/", "amq.topic", permission)


async def test_a_publication_that_is_not_allowed_is_refused(house: House) -> None:
    allow(house, write=r"^sensors\.7\.")
    queue = house.stand.queue()
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected()
    caller.publish("sensors/7/report", qos=1, number=1)
    caller.publish("sensors/8/report", qos=1, number=2)
    caller.publish("sensors/8/report", qos=2, number=3)
    caller.publish("sensors/8/report", qos=0)
    assert await caller.until_answered(PUBACK, 2) == [(2, Reason.NOT_AUTHORIZED), (1, 0)]
    assert caller.answers(PUBREC) == [(3, Reason.NOT_AUTHORIZED)]
    assert queue.message_count == 1
    assert not caller.cable.closing


async def test_3_1_1_has_no_word_for_it_and_is_closed(house: House) -> None:
    allow(house, write="^ok$")
    caller = await house.connected(version=4)
    caller.publish("no", qos=1, number=1)
    await caller.until_closed()
    assert not caller.of(PUBACK)


async def test_a_subscription_that_is_not_allowed_is_refused(house: House) -> None:
    allow(house, read="^ok$")
    caller = await house.connected()
    assert caller.subscribe("ok", "no", "$share/g/no") == [
        0,
        Reason.NOT_AUTHORIZED,
        Reason.NOT_AUTHORIZED,
    ]


async def test_permissions_that_change_hold_for_those_who_are_connected(house: House) -> None:
    caller = await house.connected()
    caller.publish("a", qos=1, number=1)
    allow(house, write="^b$")
    caller.publish("a", qos=1, number=2)
    assert caller.answers(PUBACK)[-1] == (2, Reason.NOT_AUTHORIZED)


async def test_a_user_that_is_deleted_publishes_and_subscribes_no_more(house: House) -> None:
    caller = await house.connected()
    caller.publish("a", qos=1, number=1)
    house.users.delete("guest")
    caller.publish("a", qos=1, number=2)
    assert caller.answers(PUBACK)[-1] == (2, Reason.NOT_AUTHORIZED)
    assert caller.subscribe("a") == [Reason.NOT_AUTHORIZED]


# Choking.


async def test_a_socket_that_takes_no_more_is_sent_no_more(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=1)
    caller.terminal.pause_writing()
    caller.publish("a", b"must", qos=1, number=1)
    caller.publish("a", b"may")
    assert not caller.got
    caller.terminal.resume_writing()
    assert caller.payloads == [b"must", b"may"]


async def test_much_in_one_turn_waits_for_the_next(house: House) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    writer = await house.connected("writer")
    writer.say(*[published(5, "a", b"." * 100_000)] * 6)
    await caller.until_got(6)
    assert not caller.terminal.outflow.choked


async def test_who_asks_and_asks_and_does_not_read_is_not_read_from(house: House) -> None:
    caller = await house.connected()
    caller.terminal.pause_writing()
    caller.cable.unsent = 5 << 20
    caller.say(mqtt_wire.PINGREQ)
    assert not caller.cable.reading
    caller.cable.unsent = 0
    caller.terminal.resume_writing()
    assert caller.cable.reading


# Alarms.


async def test_publishers_wait_while_an_alarm_sounds(house: House) -> None:
    writer, reader = await house.connected("writer"), await house.connected("reader")
    writer.publish("a")
    house.alarms.sound("memory", "full")
    assert not writer.cable.reading
    assert reader.cable.reading
    assert house.kernel.metrics.blocked == 1
    house.alarms.clear("memory")
    assert writer.cable.reading
    assert house.kernel.metrics.blocked == 0


async def test_who_begins_to_publish_during_an_alarm_waits_from_then_on(house: House) -> None:
    caller = await house.connected()
    house.alarms.sound("disk", "full")
    caller.publish("a")
    assert not caller.cable.reading


async def test_one_that_goes_while_it_waits_is_not_counted_any_more(house: House) -> None:
    caller = await house.connected()
    caller.publish("a")
    house.alarms.sound("disk", "full")
    await caller.cut()
    assert house.kernel.metrics.blocked == 0


# Management.


async def test_a_connection_is_described_at_every_stage(house: House) -> None:
    caller = house.caller()
    assert caller.terminal.describe()["state"] == "starting"
    await caller.connect("c")
    described = caller.terminal.describe()
    assert (described["state"], described["protocol"]) == ("running", "MQTT 5.0")
    assert described["client_properties"] == {"client_id": "c"}
    assert caller.terminal.describe_consumers() == []
    caller.subscribe("a")
    (consumer,) = caller.terminal.describe_consumers()
    assert consumer["queue"]["name"] == "mqtt-subscription-c"
    await caller.cut()
    caller.terminal.describe()


async def test_an_operator_may_end_a_connection(house: House) -> None:
    caller = await house.connected()
    caller.terminal.end("because")
    assert await caller.until_closed() == Reason.ADMINISTRATIVE_ACTION


async def test_a_peer_that_does_not_read_its_goodbye_is_cut_off(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await house.connected()
    aborted: list[Caller] = []
    monkeypatch.setattr(caller.cable, "close", lambda: None)
    monkeypatch.setattr(caller.cable, "abort", lambda: aborted.append(caller))
    caller.terminal.end("because")
    house.clock.advance(5)
    assert aborted == [caller]
    caller.cable.cut()
