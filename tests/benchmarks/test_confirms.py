"""A publisher's confirms are counted once each, whatever form they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.broker import frames
from benchmarks.broker.confirms import Confirms
from benchmarks.errors import WrongDelivery


def take(confirms: Confirms, octets: bytes, published: int = 1000) -> int:
    confirms.room()[: len(octets)] = octets
    return confirms.took(len(octets), published)


def test_single_and_multiple_confirms_add_up() -> None:
    confirms = Confirms()

    assert take(confirms, frames.ack(1, 3, multiple=False)) == 1
    assert take(confirms, frames.ack(1, 5, multiple=True)) == 5
    assert take(confirms, frames.ack(1, 6, multiple=False)) == 6


@given(order=st.permutations(range(1, 30)), piece=st.integers(1, 100))
def test_any_order_in_any_pieces(order: list[int], piece: int) -> None:
    confirms = Confirms()
    stream = b"".join(frames.ack(1, tag, multiple=False) for tag in order)

    for start in range(0, len(stream), piece):
        take(confirms, stream[start : start + piece])

    assert confirms.confirmed == len(order)


def test_a_second_confirm_of_a_message_is_an_error() -> None:
    confirms = Confirms()
    take(confirms, frames.ack(1, 5, multiple=True))

    with pytest.raises(WrongDelivery, match="4 is confirmed twice"):
        take(confirms, frames.ack(1, 4, multiple=False))


def test_a_confirm_of_what_was_not_published_is_an_error() -> None:
    with pytest.raises(WrongDelivery, match="11 is confirmed, 10 were published"):
        take(Confirms(), frames.ack(1, 11, multiple=False), published=10)


def test_a_refusal_is_an_error() -> None:
    nack = frames.method(1, (60, 120), (1).to_bytes(8) + b"\x00")

    with pytest.raises(WrongDelivery, match="no confirm"):
        take(Confirms(), nack)
