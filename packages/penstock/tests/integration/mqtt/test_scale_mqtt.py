"""A hundred thousand subscriptions, a million retained topics: in the memory of a laptop.

The normal run has a few per cent of that, which shows the same where it is a matter of principle.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import NewPenstock
from tests.integration.mqtt.building import publish_bytes, subscribe_bytes
from tests.integration.mqtt.dialogue import Client
from tests.integration.mqtt.packets import MQTT_5, Kind, Packet
from tests.peers import Penstock, cpu_seconds, resident_bytes

MIB = 1 << 20
BATCH = 1000
#: What one takes at most, all told, and what the process may need beside.
SUBSCRIPTION_BYTES = 2000
RETAINED_BYTES = 700
BESIDE = 24 * MIB

FEW_AND_MANY = pytest.mark.parametrize(
    "count", [5_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
SOME_AND_A_MILLION = pytest.mark.parametrize(
    "count", [20_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)


@pytest.fixture
def broker(new_penstock: NewPenstock) -> Penstock:
    return new_penstock(mqtt=True)


def connected(broker: Penstock, client_id: str) -> Client:
    client = Client(broker.mqtt_port, MQTT_5, client_id)
    client.socket.settimeout(60)
    assert client.connect().reason == 0
    return client


def batches(count: int) -> Iterator[range]:
    for start in range(0, count, BATCH):
        yield range(start, min(count, start + BATCH))


def processor_seconds(broker: Penstock) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def subscribe_to_sensors(client: Client, count: int) -> None:
    for batch in batches(count):
        filters = [(f"sensors/{number}/report", 1) for number in batch]
        reasons = client.call(subscribe_bytes(1, filters), Kind.SUBACK).reasons
        assert set(reasons) == {1}


def retain_reports(client: Client, count: int) -> None:
    """The last of each batch is acknowledged, so that the broker is never far behind."""
    body = b"%60d"
    for batch in batches(count):
        *most, last = ((f"sensors/{number}/report", body % number) for number in batch)
        data = [publish_bytes(topic, payload, retain=True) for topic, payload in most]
        data.append(publish_bytes(*last, retain=True, qos=1, number=1))
        client.call(b"".join(data), Kind.PUBACK)


def publish_elsewhere(broker: Penstock, client: Client) -> float:
    """Publish what nobody wants; processor seconds it took the broker."""
    began = processor_seconds(broker)
    for batch in batches(50_000):
        packets = [publish_bytes(f"elsewhere/{number}/report", b"x") for number in batch]
        client.send(b"".join(packets))
        client.settle()
    return processor_seconds(broker) - began


@FEW_AND_MANY
def test_subscriptions_fit_in_memory_and_find_their_messages(broker: Penstock, count: int) -> None:
    before = resident_bytes(broker.pid)
    with connected(broker, "reader") as reader, connected(broker, "writer") as writer:
        subscribe_to_sensors(reader, count)
        grown = resident_bytes(broker.pid) - before
        for number in (0, count // 2, count - 1):
            writer.publish(f"sensors/{number}/report", b"%d" % number)
            writer.publish(f"sensors/{number}/event", b"nobody wants this")
        arrived = [reader.take().payload for _ in range(3)]
        assert reader.settle() == []

    assert arrived == [b"0", b"%d" % (count // 2), b"%d" % (count - 1)]
    assert grown < count * SUBSCRIPTION_BYTES + BESIDE, f"{grown // count} bytes each"


@FEW_AND_MANY
def test_subscriptions_of_many_clients_are_as_good(broker: Penstock, count: int) -> None:
    clients = [connected(broker, f"reader-{number}") for number in range(50)]
    for batch in batches(count):
        client = clients[batch.start // BATCH % len(clients)]
        filters = [(f"sensors/{number}/+", 0) for number in batch]
        client.call(subscribe_bytes(1, filters), Kind.SUBACK)
    with connected(broker, "writer") as writer:
        for number in range(0, count, BATCH):
            writer.publish(f"sensors/{number}/report", b"%d" % number)

    arrived: list[bytes] = []
    for client in clients:
        arrived += [packet.payload for packet in client.settle()]
        client.close()
    assert sorted(map(int, arrived)) == list(range(0, count, BATCH))


@FEW_AND_MANY
def test_a_filter_that_does_not_match_costs_nothing(broker: Penstock, count: int) -> None:
    with connected(broker, "reader") as reader, connected(broker, "writer") as writer:
        reader.subscribe("sensors/x/report")
        publish_elsewhere(broker, writer)  # to warm up
        alone = publish_elsewhere(broker, writer)
        subscribe_to_sensors(reader, count)
        among_many = publish_elsewhere(broker, writer)

    assert among_many < 1.5 * alone + 0.1, f"{alone:.2f} s, then {among_many:.2f} s"


@SOME_AND_A_MILLION
def test_retained_messages_fit_in_memory_and_are_found(broker: Penstock, count: int) -> None:
    before = resident_bytes(broker.pid)
    with connected(broker, "writer") as writer:
        retain_reports(writer, count)
    grown = resident_bytes(broker.pid) - before
    check_found(broker, count)
    broker.kill()
    broker.start()
    check_found(broker, count)

    assert grown < count * RETAINED_BYTES + BESIDE, f"{grown // count} bytes each"


def check_found(broker: Penstock, count: int) -> None:
    with connected(broker, "reader") as reader:
        before = cpu_seconds(broker.pid)
        for number in (0, 7, count - 1):
            for pattern in (f"sensors/{number}/report", f"sensors/{number}/#"):
                reader.subscribe(pattern)
                packet = reader.receive(Kind.PUBLISH)
                assert (packet.retain, int(packet.payload)) == (True, number)
        assert cpu_seconds(broker.pid) - before < 1.0, "what does not match is looked at"


@SOME_AND_A_MILLION
def test_a_subscriber_to_all_that_is_retained_gets_it_a_little_at_a_time(
    broker: Penstock, count: int
) -> None:
    with connected(broker, "writer") as writer:
        retain_reports(writer, count)
    before = resident_bytes(broker.pid)
    with connected(broker, "reader") as reader:
        reader.subscribe("sensors/+/report")
        found = {retained_number(reader.receive(Kind.PUBLISH)) for _ in range(count)}

    assert len(found) == count
    # The names of what is to come, and no more than a socket's worth of messages.
    assert resident_bytes(broker.pid) - before < count * 150 + BESIDE


def retained_number(packet: Packet) -> int:
    assert packet.retain
    return int(packet.payload)
