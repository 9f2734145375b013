"""Wills: said when a client is gone without a word, and when its time to come back is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.permissions import Permission, TopicPermission
from penstock.protocols.mqtt.conversion import message_properties
from penstock.protocols.mqtt.sessions import WillMessage
from penstock.wire.mqtt import packets
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import ReasonCode
from tests.protocols.mqtt.broker import Caller, MqttTestBroker


@pytest.fixture
async def witness(house: MqttTestBroker) -> Caller:
    witness = await house.connected("witness", expiry=1000)
    witness.subscribe("will", qos=1)
    return witness


def will(delay: int = 0, *, qos: int = 0, retain: bool = False) -> packets.ConnectWill:
    properties = {MqttProperty.WILL_DELAY: delay} if delay else {}
    return packets.ConnectWill("will", b"gone", qos, retain, properties)


async def test_it_is_said_when_the_connection_breaks(
    house: MqttTestBroker, witness: Caller
) -> None:
    caller = await house.connected(will=will())
    await caller.cut()
    assert witness.payloads == [b"gone"]


async def test_it_is_said_after_a_protocol_error(house: MqttTestBroker, witness: Caller) -> None:
    caller = await house.connected(will=will())
    caller.say(b"\xf0\x00\x00")
    await caller.until_closed()
    assert witness.payloads == [b"gone"]


async def test_it_is_not_said_after_a_goodbye(house: MqttTestBroker, witness: Caller) -> None:
    caller = await house.connected(will=will())
    caller.leave()
    await caller.until_closed()
    assert not witness.payloads


async def test_a_client_may_leave_and_have_it_said(house: MqttTestBroker, witness: Caller) -> None:
    caller = await house.connected(will=will())
    caller.leave(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)
    await caller.until_closed()
    assert witness.payloads == [b"gone"]


async def test_it_is_said_once(house: MqttTestBroker, witness: Caller) -> None:
    caller = await house.connected(will=will(), expiry=10)
    await caller.cut()
    house.clock.advance(100)
    assert witness.payloads == [b"gone"]


async def test_it_is_kept_if_it_is_to_be_retained(house: MqttTestBroker) -> None:
    caller = await house.connected(will=will(retain=True))
    await caller.cut()
    late = await house.connected("late")
    late.subscribe("will")
    (message,) = late.got
    assert (message.payload, message.retain) == (b"gone", True)


# Delay.


async def test_it_waits_as_long_as_it_was_told(house: MqttTestBroker, witness: Caller) -> None:
    caller = await house.connected(will=will(5), expiry=100)
    await caller.cut()
    house.clock.advance(4)
    assert not witness.payloads
    house.clock.advance(1)
    assert witness.payloads == [b"gone"]


async def test_it_does_not_wait_longer_than_the_session(
    house: MqttTestBroker, witness: Caller
) -> None:
    caller = await house.connected(will=will(50), expiry=3)
    await caller.cut()
    house.clock.advance(3)
    assert witness.payloads == [b"gone"]


async def test_without_a_session_that_outlives_the_connection_it_does_not_wait(
    house: MqttTestBroker, witness: Caller
) -> None:
    caller = await house.connected(will=will(50))
    await caller.cut()
    assert witness.payloads == [b"gone"]


async def test_who_comes_back_in_time_is_not_mourned(
    house: MqttTestBroker, witness: Caller
) -> None:
    caller = await house.connected(will=will(5), expiry=100)
    await caller.cut()
    await house.connected(clean=False, expiry=100)
    house.clock.advance(100)
    assert not witness.payloads


async def test_a_clean_start_ends_the_session_and_has_it_said(
    house: MqttTestBroker, witness: Caller
) -> None:
    caller = await house.connected(will=will(5), expiry=100)
    await caller.cut()
    await house.connected(clean=True, expiry=100)
    assert witness.payloads == [b"gone"]


async def test_a_take_over_has_it_said_unless_it_was_to_wait(
    house: MqttTestBroker, witness: Caller
) -> None:
    await house.connected("at once", will=will(), expiry=100)
    await house.connected("at once", clean=False, expiry=100)
    assert witness.payloads == [b"gone"]
    await house.connected("waits", will=will(5), expiry=100)
    await house.connected("waits", clean=False, expiry=100)
    house.clock.advance(50)
    assert witness.payloads == [b"gone"]


# Restarts.


async def test_it_is_said_after_a_restart_of_a_broker_that_was_killed(
    house: MqttTestBroker, witness: Caller
) -> None:
    await house.connected(will=will(qos=1), expiry=100)
    after = await house.restarted(killed=True)
    again = await after.connected("witness", clean=False, expiry=1000)
    assert again.payloads == [b"gone"]
    twice = await after.restarted(killed=True)
    again = await twice.connected("witness", clean=False, expiry=1000)
    assert [message.duplicate for message in again.got] == [True], "the same, not another"
    await twice.close()


async def test_one_that_waits_is_said_after_a_restart(
    house: MqttTestBroker, witness: Caller
) -> None:
    caller = await house.connected(will=will(20, qos=1), expiry=100)
    await caller.cut()
    after = await house.restarted(killed=True)
    again = await after.connected("witness", clean=False, expiry=1000)
    assert not again.payloads
    after.clock.advance(20)
    assert again.payloads == [b"gone"]
    await after.close()


async def test_one_that_was_called_off_is_not_said_after_a_restart(
    house: MqttTestBroker, witness: Caller
) -> None:
    caller = await house.connected(will=will(20, qos=1), expiry=100)
    await caller.cut()
    await house.connected(clean=False)
    after = await house.restarted(killed=True)
    again = await after.connected("witness", clean=False, expiry=1000)
    after.clock.advance(200)
    assert not again.payloads
    await after.close()


# What it may say.


async def test_a_will_needs_the_permission_to_publish_it(house: MqttTestBroker) -> None:
    house.users.set_permissions("guest", "/", Permission(".*", ".*", ".*"))
    house.users.set_topic_permissions("guest", "/", "amq.topic", TopicPermission("^ok$", ".*"))
    _, reason, _ = await house.caller().connect(will=will())
    assert reason == ReasonCode.NOT_AUTHORIZED
    assert not house.mqtt.sessions(house.vhost).clients


@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.parametrize("gone", [True, False])
async def test_it_is_not_said_for_a_user_who_may_no_longer_publish_it(
    house: MqttTestBroker, witness: Caller, delay: int, gone: bool
) -> None:
    house.users.add("ada", "ada")
    house.users.set_permissions("ada", "/", Permission("", "^amq.topic$", ""))
    caller = await house.connected(
        username="ada", password=b"ada", will=will(delay, retain=True), expiry=100
    )
    if gone:
        house.users.delete("ada")
    else:
        house.users.set_topic_permissions("ada", "/", "amq.topic", TopicPermission("^ok$", ""))
    await caller.cut()
    house.clock.advance(200)
    assert not witness.payloads
    assert not len(house.vhost.retained)


async def test_it_is_not_said_after_a_restart_for_a_user_who_is_gone(
    house: MqttTestBroker, witness: Caller
) -> None:
    house.users.add("ada", "ada")
    house.users.set_permissions("ada", "/", Permission("", "^amq.topic$", ""))
    await house.connected(username="ada", password=b"ada", will=will(qos=1), expiry=100)
    house.users.delete("ada")
    after = await house.restarted(killed=True)
    again = await after.connected("witness", clean=False, expiry=1000)
    assert not again.payloads
    await after.close()


async def test_a_will_may_not_speak_for_the_broker(house: MqttTestBroker) -> None:
    said = packets.ConnectWill("$SYS/broker/uptime", b"never")
    _, reason, _ = await house.caller().connect(will=said)
    assert reason == ReasonCode.NOT_AUTHORIZED


@given(
    payload=st.binary(max_size=100),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    delay=st.integers(0, 0xFFFFFFFF),
    expiry=st.integers(0, 0xFFFFFFFF),
)
def test_what_is_written_down_is_the_will(
    payload: bytes, qos: int, retain: bool, delay: int, expiry: int
) -> None:
    properties = {MqttProperty.WILL_DELAY: delay, MqttProperty.MESSAGE_EXPIRY: expiry}
    said = WillMessage.of(packets.ConnectWill("a/b", payload, qos, retain, properties), "amq.topic")
    read = WillMessage.unpacked(said.packed())
    assert read.delay == delay
    for part in ("route", "header", "body", "flags"):
        assert getattr(read.message, part) == getattr(said.message, part)
    assert message_properties(read.message) == {MqttProperty.MESSAGE_EXPIRY: expiry}
