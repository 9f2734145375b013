"""What a client is sent: no more than it takes, and as long as it is worth something."""

from __future__ import annotations

from penstock.wire.mqtt.fields import PUBACK, PUBCOMP, PUBREC, PUBREL
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import ReasonCode
from tests import mqtt_wire
from tests.protocols.mqtt.broker import MqttTestBroker, published

# Delivery.


async def test_an_answer_of_the_wrong_kind_ends_the_connection(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=2)
    caller.publish("a", qos=2, number=1)
    caller.acknowledge(PUBACK, caller.got[0].number)
    assert await caller.until_closed() == ReasonCode.PROTOCOL_ERROR


async def test_a_message_is_not_complete_before_it_was_received(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=2)
    caller.publish("a", qos=2, number=1)
    caller.acknowledge(PUBCOMP, caller.got[0].number)
    assert await caller.until_closed() == ReasonCode.PROTOCOL_ERROR


async def test_answers_to_nothing_are_passed_over(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.acknowledge(PUBACK, 9)
    caller.acknowledge(PUBCOMP, 9)
    caller.acknowledge(PUBREC, 9)
    assert caller.acknowledgements(PUBREL) == [(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    assert not caller.cable.closing


async def test_no_more_is_out_than_the_client_takes(house: MqttTestBroker) -> None:
    caller = await house.connected(receive_maximum=2)
    caller.subscribe("a", qos=1)
    for number in range(1, 6):
        caller.publish("a", b"%d" % number, qos=1, number=number)
    assert caller.payloads == [b"1", b"2"]
    caller.answer(caller.got[1])
    assert caller.payloads == [b"1", b"2", b"3"]


async def test_a_refusal_is_an_answer(house: MqttTestBroker) -> None:
    caller = await house.connected(receive_maximum=1)
    caller.subscribe("a", qos=2)
    caller.publish("a", b"1", qos=1, number=1)
    caller.publish("a", b"2", qos=2, number=2)
    caller.publish("a", b"3", qos=2, number=3)
    caller.acknowledge(PUBACK, caller.got[0].number, ReasonCode.UNSPECIFIED_ERROR)
    caller.acknowledge(PUBREC, caller.got[1].number, ReasonCode.QUOTA_EXCEEDED)
    assert caller.payloads == [b"1", b"2", b"3"]


async def test_the_time_a_message_waited_is_taken_off_what_it_has(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=1)
    caller.terminal.pause_writing()
    lives: dict[MqttProperty, int] = {MqttProperty.MESSAGE_EXPIRY: 100}
    caller.publish("a", b"must", qos=1, number=1, properties=lives)
    caller.publish("a", b"may", properties=lives)
    house.clock.advance(30)
    caller.terminal.resume_writing()
    assert [one.properties[MqttProperty.MESSAGE_EXPIRY] for one in caller.got] == [70, 70]


async def test_what_expires_while_it_waits_is_not_delivered(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=1)
    caller.terminal.pause_writing()
    caller.publish("a", b"1", qos=1, number=1, properties={MqttProperty.MESSAGE_EXPIRY: 5})
    caller.publish("a", b"2", qos=1, number=2)
    house.clock.advance(5)
    caller.terminal.resume_writing()
    assert caller.payloads == [b"2"]


async def test_topics_get_short_names_as_far_as_the_client_takes_them(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected(topic_alias_maximum=1)
    caller.subscribe("#")
    for topic in ("a", "a", "b", "b"):
        caller.publish(topic)
    assert [(one.topic, one.properties) for one in caller.got] == [
        (b"a", {MqttProperty.TOPIC_ALIAS: 1}),
        (b"", {MqttProperty.TOPIC_ALIAS: 1}),
        (b"b", {}),
        (b"b", {}),
    ]


async def test_a_short_name_that_was_not_told_is_not_used(house: MqttTestBroker) -> None:
    """The message that would have introduced it was too large for the client."""
    caller = await house.connected(topic_alias_maximum=5, maximum_packet_size=100)
    caller.subscribe("a")
    caller.publish("a", b"." * 200)
    caller.publish("a", b"small")
    (message,) = caller.got
    assert message.topic == b"a"


# Choking.


async def test_a_socket_that_takes_no_more_is_sent_no_more(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a", qos=1)
    caller.terminal.pause_writing()
    caller.publish("a", b"must", qos=1, number=1)
    caller.publish("a", b"may")
    assert not caller.got
    caller.terminal.resume_writing()
    assert caller.payloads == [b"must", b"may"]


async def test_much_in_one_turn_waits_for_the_next(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    writer = await house.connected("writer")
    writer.say(*[published(5, "a", b"." * 100_000)] * 6)
    await caller.until_got(6)
    assert not caller.terminal.output.write_blocked


async def test_who_asks_and_asks_and_does_not_read_is_not_read_from(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.terminal.pause_writing()
    caller.cable.unsent = 5 << 20
    caller.say(mqtt_wire.PINGREQ)
    assert not caller.cable.reading
    caller.cable.unsent = 0
    caller.terminal.resume_writing()
    assert caller.cable.reading
