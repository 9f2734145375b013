"""Publishers are answered in order; subscribers answer each message by the number it came with."""

from __future__ import annotations

import pytest

from benchmarks.errors import WrongDelivery
from benchmarks.harness.checker import Checker
from benchmarks.mqtt import packets
from benchmarks.mqtt.answers import Acknowledgements, Pubacks
from benchmarks.mqtt.layout import Layout, Turns
from benchmarks.mqtt.packets import V3

LAYOUT = Layout(V3, 1, 16, Turns(1, 100))


def take(answers: Pubacks, octets: bytes, published: int = 100) -> int:
    answers.room()[: len(octets)] = octets
    return answers.took(len(octets), published)


def deliver(checker: Checker, *numbers: int) -> None:
    first = checker.received
    stream = bytearray(LAYOUT.published(10).octets(first, len(numbers)).tobytes())
    for index, number in enumerate(numbers):
        start = index * checker.stride + LAYOUT.free.start
        stream[start : start + 2] = number.to_bytes(2)
    checker.room()[: len(stream)] = stream
    checker.took(len(stream))


def test_answers_are_counted_as_they_come() -> None:
    answers = Pubacks(3, 10)

    assert take(answers, packets.puback(1) + packets.puback(2)[:3]) == 1
    assert take(answers, packets.puback(2)[3:] + packets.puback(3)) == 3
    answers.finish()


def test_answers_in_another_order_are_an_error() -> None:
    answers = Pubacks(2, 10)
    take(answers, packets.puback(2) + packets.puback(1))

    with pytest.raises(WrongDelivery, match="octet 3 is 0x02 and should be 0x01"):
        answers.finish()


def test_an_answer_to_what_was_not_published_is_an_error() -> None:
    with pytest.raises(WrongDelivery, match="2 messages are answered, 1 were published"):
        take(Pubacks(5, 10), packets.puback(1) + packets.puback(2), published=1)


def test_another_packet_is_shown() -> None:
    answers = Pubacks(1, 10)
    take(answers, packets.PINGRESP * 2)

    with pytest.raises(WrongDelivery, match="this is no delivery"):
        answers.finish()


def test_each_message_is_answered_once_by_the_number_it_came_with() -> None:
    checker = Checker(LAYOUT.delivered(10), 5, free=LAYOUT.free)
    answers = Acknowledgements(LAYOUT.free)

    deliver(checker, 7, 500)
    assert answers.due(checker) == packets.puback(7) + packets.puback(500)

    deliver(checker, 7)
    assert answers.due(checker) == packets.puback(7)
    assert answers.due(checker) == b""


@pytest.mark.parametrize("numbers", [(0,), (5, 6, 5)])
def test_numbers_no_broker_may_give_are_errors(numbers: tuple[int, ...]) -> None:
    checker = Checker(LAYOUT.delivered(10), 5, free=LAYOUT.free)
    deliver(checker, *numbers)

    with pytest.raises(WrongDelivery, match="packet number"):
        Acknowledgements(LAYOUT.free).due(checker)
