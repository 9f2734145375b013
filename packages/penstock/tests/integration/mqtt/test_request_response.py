"""Request and response over MQTT 5.0 (section 4.10)."""

from __future__ import annotations

from tests.integration.mqtt.dialogue import Client
from tests.integration.mqtt.packets import Kind, Property
from tests.integration.mqtt.statements import mqtt_5

pytestmark = mqtt_5


def test_an_answer_finds_its_way_back(client: Client, publisher: Client, topic: str) -> None:
    """The server of the request knows nothing of the client but what came with it."""
    server, requester = client, publisher
    server.subscribe(f"{topic}/requests")
    requester.subscribe(f"{topic}/answers")

    requester.publish(
        f"{topic}/requests",
        b"6 * 7",
        properties=[
            (Property.RESPONSE_TOPIC, f"{topic}/answers"),
            (Property.CORRELATION_DATA, b"\x00\x01"),
        ],
    )
    request = server.receive(Kind.PUBLISH)
    server.publish(
        request.get(Property.RESPONSE_TOPIC),
        b"42",
        properties=[(Property.CORRELATION_DATA, request.get(Property.CORRELATION_DATA))],
    )

    answer = requester.receive(Kind.PUBLISH)
    assert (answer.payload, answer.get(Property.CORRELATION_DATA)) == (b"42", b"\x00\x01")
