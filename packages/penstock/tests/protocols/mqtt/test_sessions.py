"""Who is here, who may come back and until when."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.permissions import Permission
from penstock.protocols.mqtt.sessions import NO_EXPIRY
from penstock.wire.mqtt.fields import PUBACK
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import ReasonCode
from tests.protocols.mqtt.broker import MqttTestBroker


def records(house: MqttTestBroker) -> list[str]:
    return [key[2] for key, _ in house.stand.topology.all("session")]


# Coming and going.


async def test_a_session_without_expiry_ends_with_its_connection(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    await caller.cut()
    assert not house.vhost.queues
    assert not records(house)
    assert not list(house.vhost.bindings())


async def test_a_session_with_expiry_is_found_again(house: MqttTestBroker) -> None:
    caller = await house.connected(expiry=100)
    caller.subscribe("a", qos=1)
    await caller.cut()
    other = await house.connected("other")
    other.publish("a", b"meanwhile", qos=1, number=1)
    present, _, _ = await (again := house.caller()).connect(clean=False, expiry=100)
    assert present
    assert again.payloads == [b"meanwhile"]


async def test_a_clean_start_finds_nothing(house: MqttTestBroker) -> None:
    caller = await house.connected(expiry=100)
    caller.subscribe("a", qos=1)
    await caller.cut()
    present, _, _ = await house.caller().connect(clean=True, expiry=100)
    assert not present
    assert not list(house.vhost.bindings())


async def test_a_session_ends_when_its_time_is_over(house: MqttTestBroker) -> None:
    caller = await house.connected(expiry=100)
    caller.subscribe("a", qos=1)
    await caller.cut()
    house.clock.advance(99)
    assert house.session("c") is not None
    house.clock.advance(1)
    assert house.session("c") is None
    assert not records(house)


async def test_a_session_does_not_end_while_its_client_is_here(house: MqttTestBroker) -> None:
    caller = await house.connected(expiry=10)
    await caller.cut()
    await house.connected(clean=False, expiry=10)
    house.clock.advance(1000)
    assert house.session("c") is not None


async def test_a_session_that_does_not_expire_stays(tmp_path: Path) -> None:
    house = MqttTestBroker(tmp_path, mqtt={"max_session_expiry": NO_EXPIRY})
    caller = await house.connected(expiry=NO_EXPIRY)
    await caller.cut()
    house.clock.advance(1e9)
    assert house.session("c") is not None
    await house.close()


async def test_the_server_says_when_it_keeps_a_session_less_long(tmp_path: Path) -> None:
    house = MqttTestBroker(tmp_path, mqtt={"max_session_expiry": 50})
    _, _, told = await house.caller().connect(expiry=100)
    assert told[MqttProperty.SESSION_EXPIRY] == 50
    await house.close()


async def test_a_client_may_shorten_its_session_when_it_leaves(house: MqttTestBroker) -> None:
    caller = await house.connected(expiry=100)
    caller.leave(session_expiry=0)
    await caller.until_closed()
    assert not house.vhost.queues


async def test_a_client_may_not_prolong_a_session_that_ends_with_the_connection(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected()
    caller.leave(session_expiry=10)
    assert await caller.until_closed() == ReasonCode.PROTOCOL_ERROR


async def test_sessions_of_3_1_1_last_as_long_as_they_may(house: MqttTestBroker) -> None:
    caller = await house.connected(version=4, clean=False)
    await caller.cut()
    house.clock.advance(house.kernel.settings.mqtt.max_session_expiry - 1)
    present, _, _ = await house.caller(4).connect(clean=False)
    assert present


# Take-over.


async def test_the_first_is_told_that_another_took_over(house: MqttTestBroker) -> None:
    first = await house.connected(expiry=100)
    second = await house.connected(clean=False, expiry=100)
    assert await first.until_closed() == ReasonCode.SESSION_TAKEN_OVER
    assert not second.cable.lost
    assert house.mqtt.sessions(house.vhost).clients == {"c": second.terminal}


async def test_what_was_on_its_way_to_the_first_goes_to_the_second(house: MqttTestBroker) -> None:
    first = await house.connected(expiry=100)
    first.subscribe("a", qos=1)
    first.publish("a", b"1", qos=1, number=1)
    second = await house.connected(clean=False, expiry=100)
    (message,) = second.got
    assert (message.payload, message.duplicate) == (b"1", True)
    assert message.number == first.got[0].number


async def test_a_session_of_another_user_is_not_given_out(house: MqttTestBroker) -> None:
    house.users.add("eve", "secret")
    house.users.set_permissions("eve", "/", Permission(".*", ".*", ".*"))
    caller = await house.connected(expiry=100)
    stranger = house.caller()
    eve: dict[str, Any] = {"username": "eve", "password": b"secret"}
    _, reason, _ = await stranger.connect(clean=True, **eve)
    assert reason == ReasonCode.NOT_AUTHORIZED
    assert not caller.cable.lost
    await caller.cut()
    _, reason, _ = await house.caller().connect(clean=True, **eve)
    assert reason == ReasonCode.NOT_AUTHORIZED
    assert house.session("c") is not None


async def test_a_client_that_comes_back_for_good_is_not_remembered_as_away(
    house: MqttTestBroker,
) -> None:
    """With an expiry of 0 the session ends with this connection, also if the broker goes first."""
    caller = await house.connected(expiry=1000)
    caller.subscribe("a", qos=1)
    await caller.cut()
    await house.connected(clean=False, expiry=0)
    after = await house.restarted(killed=True)
    present, _, _ = await after.caller().connect(clean=False)
    assert not present
    await after.close()


# Restarts.


async def test_a_session_survives_a_restart_with_its_subscriptions(house: MqttTestBroker) -> None:
    caller = await house.connected(expiry=100)
    caller.subscribe("a", qos=1, identifier=5)
    caller.publish("a", b"1", qos=1, number=1)
    await caller.until_answered(PUBACK)
    after = await house.restarted(killed=True)
    present, _, _ = await (again := after.caller()).connect(clean=False, expiry=100)
    assert present
    (message,) = again.got
    assert (message.number, message.duplicate) == (caller.got[0].number, True)
    assert message.properties[MqttProperty.SUBSCRIPTION_IDENTIFIER] == [5]
    await after.close()


async def test_time_goes_on_while_the_broker_is_down(
    house: MqttTestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await house.connected(expiry=100)
    await caller.cut()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    after = await house.restarted()
    after.clock.advance(39)
    assert after.session("c") is not None
    after.clock.advance(2)
    assert after.session("c") is None
    await after.close()


async def test_a_clock_set_back_prolongs_no_session(
    house: MqttTestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await house.connected(expiry=100)
    await caller.cut()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 1e6)
    after = await house.restarted()
    after.clock.advance(100)
    assert after.session("c") is None
    await after.close()


async def test_a_client_that_was_here_when_the_broker_was_killed_is_away_from_the_start_on(
    house: MqttTestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.connected(expiry=100)
    first = await house.restarted(killed=True)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    second = await first.restarted(killed=True)
    second.clock.advance(50)
    assert second.session("c") is None
    await second.close()


async def test_a_session_that_has_no_record_goes_at_the_start(house: MqttTestBroker) -> None:
    house.vhost.declare_queue(
        "mqtt-subscription-x", durable=True, arguments={"x-queue-type": "mqtt"}
    )
    after = await house.restarted()
    assert not after.vhost.queues
    await after.close()


# Shares.


async def test_a_client_that_only_shares_is_served(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("$share/g/a", qos=1)
    caller.publish("a", b"1", qos=1, number=1)
    assert caller.payloads == [b"1"]


async def test_a_group_lasts_as_long_as_its_members(house: MqttTestBroker) -> None:
    one, two = await house.connected("1"), await house.connected("2")
    for caller in (one, two):
        assert caller.subscribe("$share/g/a", qos=1) == [1]
    await one.cut()
    assert "mqtt-shared-g/a" in house.vhost.queues
    assert two.unsubscribe("$share/g/a") == [0]
    assert "mqtt-shared-g/a" not in house.vhost.queues


async def test_leaving_a_group_one_is_not_in_is_told(house: MqttTestBroker) -> None:
    caller = await house.connected()
    assert caller.unsubscribe("$share/g/a") == [ReasonCode.NO_SUBSCRIPTION_EXISTED]


async def test_a_member_that_is_away_is_still_one_after_a_restart(house: MqttTestBroker) -> None:
    caller = await house.connected(expiry=100)
    caller.subscribe("$share/g/a", qos=1)
    await caller.cut()
    other = await house.connected("other")
    other.publish("a", b"kept", qos=1, number=1)
    await other.until_answered(PUBACK)
    after = await house.restarted()
    again = await after.connected(clean=False, expiry=100)
    assert again.payloads == [b"kept"]
    await after.close()


async def test_what_a_member_that_ended_did_not_answer_goes_to_another(
    house: MqttTestBroker,
) -> None:
    one = await house.connected("1")
    one.subscribe("$share/g/a", qos=2)
    two = await house.connected("2", receive_maximum=100)
    one.publish("a", b"at least once", qos=1, number=1)
    one.publish("a", b"exactly once", qos=2, number=2)
    assert one.payloads == [b"at least once", b"exactly once"]
    two.subscribe("$share/g/a", qos=2)
    await one.cut()
    assert two.payloads == [b"at least once"]


# Deleted by an operator.


async def test_a_client_whose_session_is_deleted_is_told_and_starts_anew(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected(expiry=100)
    caller.subscribe("a", qos=1)
    house.vhost.delete_queue("mqtt-subscription-c")
    house.kernel.write_batch.flush()
    assert await caller.until_closed() == ReasonCode.ADMINISTRATIVE_ACTION
    assert not records(house)
    present, reason, _ = await house.caller().connect(clean=False, expiry=100)
    assert (present, reason) == (False, 0)


async def test_a_session_deleted_while_its_client_is_away_leaves_no_share(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected(expiry=100)
    caller.subscribe("$share/g/a", qos=1)
    await caller.cut()
    house.vhost.delete_queue("mqtt-subscription-c")
    present, _, _ = await (again := house.caller()).connect(clean=False, expiry=100)
    assert not present
    again.publish("a", b"1", qos=1, number=1)
    assert not again.got, "a session that was not found subscribes to nothing"


# Names.


async def test_a_client_id_of_any_length_is_served(house: MqttTestBroker) -> None:
    client_id = "x" * 1000
    caller = await house.connected(client_id, expiry=100)
    assert caller.subscribe("a", qos=1) == [1]
    caller.publish("a", b"1", qos=1, number=1)
    await caller.until_answered(PUBACK)
    after = await house.restarted()
    again = await after.connected(client_id, clean=False, expiry=100)
    assert again.payloads == [b"1"]
    await after.close()


async def test_a_queue_that_has_the_name_of_a_session_is_neither_used_nor_deleted(
    house: MqttTestBroker,
) -> None:
    queue = house.stand.queue("mqtt-subscription-c", durable=True)
    caller = house.caller()
    _, reason, _ = await caller.connect(clean=True, expiry=100)
    assert reason >= 0x80
    assert house.vhost.queues["mqtt-subscription-c"] is queue
    await caller.until_closed()
    assert not house.mqtt.sessions(house.vhost).clients
    assert not records(house)
