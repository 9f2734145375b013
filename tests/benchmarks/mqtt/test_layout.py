"""Rows hold the packets of the standard, each publisher's own."""

from __future__ import annotations

import pytest

from benchmarks.errors import WrongDelivery
from benchmarks.harness.checker import Checker
from benchmarks.harness.rows import body
from benchmarks.mqtt import packets
from benchmarks.mqtt.layout import Layout, Turns, pubacks
from benchmarks.mqtt.packets import V3, V5
from benchmarks.mqtt.scenarios import SCENARIOS, Scenario

COUNT = 3_000


def published(scenario: Scenario, count: int = COUNT) -> list[bytes]:
    """What must be written, built one message at a time from the protocol's own parts."""
    layout, turns = scenario.layout, scenario.layout.turns
    filler = body(layout.payload_bytes)[8:-8]
    counts = [0] * turns.publishers
    result = []
    for sequence in range(count):
        publisher = sequence // turns.batch % turns.publishers
        counts[publisher] += 1
        number = sequence.to_bytes(8)
        topic = f"sensors/{publisher:03}/report"
        packet_number = counts[publisher] if layout.qos else 0
        payload = number + filler + number
        result.append(packets.publish(layout.version, topic, packet_number, payload))
    return result


def test_golden_packets() -> None:
    assert packets.connect(V3, "a", 60, "u", "p") == bytes.fromhex(
        "10 13 0004 4d515454 04 c2 003c 0001 61 0001 75 0001 70"
    )
    assert packets.connect(V5, "a", 60, "u", "p") == bytes.fromhex(
        "10 14 0004 4d515454 05 c2 003c 00 0001 61 0001 75 0001 70"
    )
    assert packets.subscribe(V3, 1, "a/+", 1) == bytes.fromhex("82 08 0001 0003 612f2b 01")
    assert packets.subscribe(V5, 1, "a/+", 1) == bytes.fromhex("82 09 0001 00 0003 612f2b 01")
    assert packets.publish(V3, "a", 0, b"x") == bytes.fromhex("30 04 0001 61 78")
    assert packets.publish(V3, "a", 7, b"x") == bytes.fromhex("32 06 0001 61 0007 78")
    assert packets.publish(V5, "a", 7, b"x") == bytes.fromhex("32 07 0001 61 0007 00 78")
    assert packets.puback(7) == bytes.fromhex("40 02 0007")
    assert packets.varint(321) == bytes.fromhex("c1 02")


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_rows_are_what_publishers_write(scenario: Scenario) -> None:
    rows = scenario.layout.published(COUNT)

    assert rows.octets(0, COUNT).tobytes() == b"".join(published(scenario))


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_what_was_published_passes_whatever_numbers_the_broker_gives(scenario: Scenario) -> None:
    layout = scenario.layout
    checker = Checker(layout.delivered(COUNT), COUNT, free=layout.free)
    stream = bytearray(b"".join(published(scenario)))
    for start in range(0, len(stream), checker.stride):
        stream[start + layout.free.start : start + layout.free.stop] = b"\xab\xcd"[: 2 * layout.qos]

    checker.room()[: len(stream)] = stream
    checker.took(len(stream))
    checker.finish()

    assert checker.received == COUNT


@pytest.mark.parametrize("at", [0, 1, 4, 30, 60])
def test_any_other_octet_is_checked(at: int) -> None:
    layout = Layout(V3, 1, 59, Turns(1, 100))
    stream = bytearray(layout.published(2).octets(0, 2).tobytes())
    stream[at] ^= 1
    checker = Checker(layout.delivered(2), 2, free=layout.free)
    checker.room()[:] = stream
    checker.took(len(stream))

    with pytest.raises(WrongDelivery):
        checker.finish()


def test_packet_numbers_begin_again_after_the_last() -> None:
    answers = pubacks(3).octets(65_533, 3).tobytes()

    assert answers == packets.puback(65_534) + packets.puback(65_535) + packets.puback(1)


@pytest.mark.parametrize("messages", [0, 1, 9, 10, 29, 30, 31, 45, 60])
def test_publishers_share_all_messages(messages: int) -> None:
    turns = Turns(3, 10)

    shares = [turns.share(messages, publisher) for publisher in range(3)]

    owners = [sequence // 10 % 3 for sequence in range(messages)]
    assert shares == [owners.count(publisher) for publisher in range(3)]
