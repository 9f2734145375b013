"""The checker accepts exactly what was published, and says what is wrong with anything else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.broker import frames
from benchmarks.broker.scenarios import SCENARIOS, Scenario
from benchmarks.errors import WrongDelivery
from benchmarks.harness.checker import Checker

TOTAL = 50
CAPACITY = 16


def deliveries(scenario: Scenario, total: int = TOTAL) -> list[bytes]:
    """What a broker must send, built one message at a time from the protocol's own parts."""
    body_bytes = scenario.layout.body_bytes
    filler = bytes(index & 255 for index in range(body_bytes))[8:-8]
    result = []
    for sequence in range(total):
        key = scenario.layout.key.text
        if scenario.name == "d":
            letters = "".join(chr(ord("a") + int(digit, 16)) for digit in f"{sequence:08x}")
            key = f"k.{sequence * 617 % 1000:03}.{letters}.x"
        number = sequence.to_bytes(8)
        method = frames.deliver(1, "bench", sequence + 1, scenario.layout.exchange, key)
        body = number + filler + number
        result.append(method + frames.content(1, body, persistent=scenario.layout.persistent))
    return result


def check(stream: bytes, scenario: Scenario = SCENARIOS["a"], piece: int = 300) -> Checker:
    """Feed the stream in pieces, as a socket would."""
    checker = Checker(scenario.layout.delivered(1, "bench", CAPACITY), TOTAL)
    while stream:
        room = checker.room()
        octets = min(piece, len(room), len(stream))
        room[:octets] = stream[:octets]
        checker.took(octets)
        stream = stream[octets:]
    checker.finish()
    return checker


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_what_was_published_passes(scenario: Scenario) -> None:
    checker = check(b"".join(deliveries(scenario)), scenario)

    assert checker.received == TOTAL


@given(piece=st.integers(1, 2000))
def test_it_does_not_matter_how_the_stream_is_cut(piece: int) -> None:
    assert check(b"".join(deliveries(SCENARIOS["a"])), piece=piece).received == TOTAL


@given(lost=st.integers(0, TOTAL - 2))
def test_a_lost_message_is_noticed(lost: int) -> None:
    messages = deliveries(SCENARIOS["a"])
    del messages[lost]

    with pytest.raises(WrongDelivery, match=f"delivery {lost}: message {lost + 1} .*1 missing"):
        check(b"".join(messages))


def test_a_lost_last_message_is_noticed() -> None:
    with pytest.raises(WrongDelivery, match="49 of 50 messages arrived"):
        check(b"".join(deliveries(SCENARIOS["a"])[:-1]))


@given(twice=st.integers(0, TOTAL - 2))
def test_a_message_delivered_twice_is_noticed(twice: int) -> None:
    messages = deliveries(SCENARIOS["a"])
    messages.insert(twice, messages[twice])

    with pytest.raises(WrongDelivery, match=f"delivery {twice + 1}: message {twice} .*twice"):
        check(b"".join(messages))


def test_a_message_too_many_is_noticed() -> None:
    with pytest.raises(WrongDelivery, match="51 of 50 messages arrived"):
        check(b"".join(deliveries(SCENARIOS["a"], TOTAL + 1)))


@given(first=st.integers(0, TOTAL - 2), apart=st.integers(1, TOTAL))
def test_messages_in_another_order_are_noticed(first: int, apart: int) -> None:
    messages = deliveries(SCENARIOS["a"])
    second = min(first + apart, TOTAL - 1)
    messages[first], messages[second] = messages[second], messages[first]

    with pytest.raises(WrongDelivery, match=f"delivery {first}: .*out of order"):
        check(b"".join(messages))


@given(data=st.data())
@pytest.mark.parametrize("name", ["a1k", "b", "c", "d"])
def test_any_altered_octet_is_noticed(name: str, data: st.DataObject) -> None:
    stream = bytearray(b"".join(deliveries(SCENARIOS[name])))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))

    with pytest.raises(WrongDelivery):
        check(bytes(stream), SCENARIOS[name])


def test_octets_after_the_last_message_are_noticed() -> None:
    with pytest.raises(WrongDelivery, match="3 octets"):
        check(b"".join(deliveries(SCENARIOS["a"])) + b"\x01\x00\x01")


def test_another_frame_between_deliveries_is_shown() -> None:
    messages = deliveries(SCENARIOS["a"])
    close = frames.method(1, frames.CHANNEL_CLOSE, b"\x01\x99\x04GONE" + bytes(4))
    messages.insert(20, close)

    with pytest.raises(WrongDelivery, match=re.escape("no delivery") + ".*GONE"):
        check(b"".join(messages))


def test_the_same_messages_are_published() -> None:
    layout = SCENARIOS["a1k"].layout
    published = layout.published(1, 4).octets(7, 2).tobytes()
    delivered = layout.delivered(1, "bench", 4).octets(7, 2).tobytes()
    content = len(frames.content(1, bytes(1024), persistent=False))

    one, other = published[: len(published) // 2], delivered[: len(delivered) // 2]
    assert one[-content:] == other[-content:]
    assert one[:-content] == frames.publish(1, "", "bench")
