"""Subscription identifiers (sections 3.3.4 and 3.8.2)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.dialogue import Client
from tests.integration.mqtt.packets import Kind, Property
from tests.integration.mqtt.statements import mqtt_5

pytestmark = mqtt_5


def test_the_identifier_is_replaced_with_the_rest(
    client: Client, publisher: Client, topic: str
) -> None:
    for identifier in (1, 2):
        client.subscribe(topic, properties=[(Property.SUBSCRIPTION_IDENTIFIER, identifier)])

    publisher.publish(topic)

    assert client.receive(Kind.PUBLISH).all(Property.SUBSCRIPTION_IDENTIFIER) == [2]


def test_identifiers_of_all_matching_subscriptions_come_with_the_message(
    client: Client, publisher: Client, topic: str
) -> None:
    """In one copy or in many; none is left out, and none is there that does not match."""
    for number, one in enumerate([f"{topic}/a", f"{topic}/#", f"{topic}/b"], 1):
        client.subscribe(one, properties=[(Property.SUBSCRIPTION_IDENTIFIER, number)])
    client.subscribe(f"{topic}/+")

    publisher.publish(f"{topic}/a")

    packets = client.settle()
    found = [one for packet in packets for one in packet.all(Property.SUBSCRIPTION_IDENTIFIER)]
    assert sorted(found) == [1, 2]


@pytest.mark.parametrize("identifier", [1, 127, 128, 268_435_455])
def test_an_identifier_may_be_as_large_as_it_can(
    client: Client, publisher: Client, topic: str, identifier: int
) -> None:
    client.subscribe(topic, properties=[(Property.SUBSCRIPTION_IDENTIFIER, identifier)])

    publisher.publish(topic)

    assert client.receive(Kind.PUBLISH).get(Property.SUBSCRIPTION_IDENTIFIER) == identifier


def test_identifiers_come_with_retained_messages_too(
    client: Client, publisher: Client, topic: str
) -> None:
    publisher.publish(topic, b"kept", retain=True)

    client.subscribe(topic, properties=[(Property.SUBSCRIPTION_IDENTIFIER, 7)])

    assert client.receive(Kind.PUBLISH).get(Property.SUBSCRIPTION_IDENTIFIER) == 7


def test_an_identifier_comes_with_a_shared_subscription_too(
    client: Client, publisher: Client, topic: str
) -> None:
    identifier = [(Property.SUBSCRIPTION_IDENTIFIER, 9)]
    client.subscribe(f"$share/group/{topic}", properties=identifier)

    publisher.publish(topic)

    assert client.receive(Kind.PUBLISH).get(Property.SUBSCRIPTION_IDENTIFIER) == 9
