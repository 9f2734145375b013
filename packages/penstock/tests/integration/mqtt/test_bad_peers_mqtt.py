"""MQTT clients that misbehave: bounded in time and memory, and alone in noticing.

How long a broker waits and how much it may grow are Penstock's own promises, so these run on
Penstock alone.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fixtures import NewPenstock
from tests.integration.mqtt.building import connect_bytes, publish_bytes
from tests.integration.mqtt.dialogue import Client, lasting
from tests.integration.mqtt.packets import MQTT_3, MQTT_5, Kind, Property
from tests.peers import Penstock, resident_bytes

MIB = 1 << 20
PACKET_TOO_LARGE = 0x95
SESSION_TAKEN_OVER = 0x8E


@pytest.fixture
def broker(new_penstock: NewPenstock) -> Penstock:
    return new_penstock(mqtt=True, environment={"PENSTOCK_BROKER__HANDSHAKE_TIMEOUT": "1s"})


@contextmanager
def bounded(broker: Penstock, growth: int) -> Iterator[None]:
    """What happens within costs the broker no more memory than this."""
    before = resident_bytes(broker.pid)
    yield
    grown = resident_bytes(broker.pid) - before
    assert grown < growth, f"grew by {grown // MIB} MiB"


def connected(broker: Penstock, client_id: str = "", version: int = MQTT_5) -> Client:
    client = Client(broker.mqtt_port, version, client_id)
    assert client.connect().reason == 0
    return client


def check_bystander(broker: Penstock) -> None:
    """Another client is served as ever."""
    with connected(broker, "bystander") as client:
        client.subscribe("bystander", options=1)
        client.send(publish_bytes("bystander", b"still here", qos=1, number=9))
        kinds = {client.receive().kind for _ in range(2)}
        assert kinds == {Kind.PUBACK, Kind.PUBLISH}


# Before they are let in.


@pytest.mark.parametrize("part", [0, 1, 5, -1], ids=["nothing", "a byte", "a start", "nearly all"])
def test_a_client_that_stops_in_the_middle_of_its_connect_is_closed(
    broker: Penstock, part: int
) -> None:
    packet = connect_bytes("slow", user="guest", password=b"guest")
    with Client(broker.mqtt_port) as client:
        began = time.monotonic()
        for byte in packet[:part]:
            client.send(bytes([byte]))

        assert client.receive_rest() == b""
        assert time.monotonic() - began > 0.5


def test_a_connect_may_come_a_byte_at_a_time(broker: Penstock) -> None:
    with Client(broker.mqtt_port) as client:
        for byte in connect_bytes("slow", user="guest", password=b"guest"):
            client.send(bytes([byte]))

        assert client.receive(Kind.CONNACK).reason == 0


def test_many_who_connect_and_say_nothing_are_closed_and_forgotten(broker: Penstock) -> None:
    with bounded(broker, 16 * MIB):
        silent = [Client(broker.mqtt_port) for _ in range(300)]
        check_bystander(broker)
        for client in silent:
            assert client.receive_rest() == b""
            client.close()


def test_who_has_not_logged_in_gets_little_memory(broker: Penstock) -> None:
    """A packet of 256 MB is announced; nobody waits for it."""
    with Client(broker.mqtt_port) as client, bounded(broker, 8 * MIB):
        client.send(b"\x10\xff\xff\xff\x7f" + b"\x00\x04MQTT\x05")

        client.receive_rest()


# Reconnecting.


@pytest.mark.parametrize("kept", [False, True], ids=["clean", "kept"])
def test_a_client_that_reconnects_in_a_loop_costs_no_memory(broker: Penstock, kept: bool) -> None:
    def round_trip(client_id: str) -> None:
        with Client(broker.mqtt_port, MQTT_5, client_id) as client:
            fields = lasting(MQTT_5) if kept else {}
            assert client.connect(user=None, password=None, **fields).reason == 0
            client.subscribe("loop", options=1)

    for _ in range(200):  # what a broker needs once is not counted
        round_trip("loop")
    with bounded(broker, 8 * MIB):
        for number in range(2000):
            round_trip(f"loop-{number % 10}")
    check_bystander(broker)


def test_clients_who_fight_for_an_id_leave_one_winner(broker: Penstock) -> None:
    clients: list[Client] = []
    lock = threading.Lock()

    def fight() -> None:
        client = Client(broker.mqtt_port, MQTT_5, "contested")
        with lock:
            clients.append(client)
        client.send(connect_bytes("contested", user="guest", password=b"guest"))

    fighters = [threading.Thread(target=fight) for _ in range(100)]
    for fighter in fighters:
        fighter.start()
    for fighter in fighters:
        fighter.join()

    for client in clients:
        assert client.receive(Kind.CONNACK).reason == 0
    with Client(broker.mqtt_port, MQTT_5, "contested") as last:
        assert last.connect().reason == 0
        said = [client.end() for client in clients]
        assert last.settle() == []
    assert {packet and packet.reason for packet in said} == {SESSION_TAKEN_OVER}
    for client in clients:
        client.close()


# Reading.


@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_that_never_reads_costs_little_and_hinders_nobody(
    broker: Penstock, qos: int
) -> None:
    """A quarter of a gigabyte goes by; whoever reads gets all of it."""
    payload = b"x" * 65_536
    chunk = b"".join(
        publish_bytes("flood", payload, qos=qos, number=number or None)
        for number in (range(1, 17) if qos else [0] * 16)
    )
    with (
        connected(broker, "deaf") as deaf,
        connected(broker, "hears") as hears,
        connected(broker, "speaks") as speaks,
    ):
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        deaf.subscribe("flood", options=qos)
        hears.subscribe("flood", options=0)
        with bounded(broker, 64 * MIB):
            for _ in range(256):
                speaks.send(chunk)
                for _ in range(16):
                    assert hears.receive(Kind.PUBLISH).payload == payload
                if qos:
                    speaks.receive_many(16, Kind.PUBACK)
        check_bystander(broker)


def test_a_subscriber_that_never_acknowledges_holds_its_window_and_no_more(
    broker: Penstock,
) -> None:
    count = 20_000
    with (
        connected(broker, "speaks") as speaks,
        Client(broker.mqtt_port, MQTT_5, "slow") as slow,
    ):
        slow.connect(properties=[(Property.RECEIVE_MAXIMUM, 100)])
        slow.subscribe("work", options=1)
        with bounded(broker, 32 * MIB):
            for start in range(0, count, 1000):
                speaks.send(
                    b"".join(
                        publish_bytes("work", b"%d" % (start + n), qos=1, number=n + 1)
                        for n in range(1000)
                    )
                )
                speaks.receive_many(1000, Kind.PUBACK)
        window = slow.settle()
        assert [packet.payload for packet in window] == [b"%d" % n for n in range(100)]

        for packet in window:
            slow.answer(Kind.PUBACK, packet)
        rest = [slow.take().payload for _ in range(count - 100)]

    assert rest == [b"%d" % n for n in range(100, count)]


# Sending.


@pytest.mark.parametrize("version", [MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def test_a_packet_over_the_limit_is_refused_before_it_is_taken_in(
    new_penstock: NewPenstock, version: int
) -> None:
    broker = new_penstock("--set", "broker.mqtt.max_packet_bytes=1MiB", mqtt=True)
    with Client(broker.mqtt_port, version, "large") as client:
        connack = client.connect()
        if version == MQTT_5:
            assert connack.get(Property.MAXIMUM_PACKET_SIZE) == MIB
        with bounded(broker, 8 * MIB):
            client.send(publish_bytes("a", b"x" * MIB, version=version)[:5000])
            last = client.end()

    if version == MQTT_5:
        assert last is not None
        assert (last.kind, last.reason) == (Kind.DISCONNECT, PACKET_TOO_LARGE)
    check_bystander(broker)


def test_a_publisher_that_stops_in_the_middle_of_a_message_is_alone(broker: Penstock) -> None:
    half = publish_bytes("half", b"x" * 10 * MIB, qos=1, number=1)[: 5 * MIB]
    with connected(broker, "halves") as client, connected(broker, "reader") as reader:
        reader.subscribe("half", options=1)
        client.send(half)
        check_bystander(broker)
        client.close()

        assert reader.settle() == []
    check_bystander(broker)
