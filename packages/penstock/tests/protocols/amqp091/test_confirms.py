"""Publisher confirms: every tag is answered once, with what became of its message."""

from __future__ import annotations

from itertools import permutations, product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.amqp091.channel import ChannelConfirms
from penstock.wire.amqp091.methods import decode_method

CONFIRM, REFUSE = True, False


class Publisher:
    """The other end of a channel: it checks each answer against what the broker knows by then."""

    number = 1

    def __init__(self, published: int) -> None:
        self.metrics = SimpleNamespace(confirmed=0)
        self.connection = SimpleNamespace(
            host=SimpleNamespace(kernel=SimpleNamespace(metrics=self.metrics))
        )
        self.known: dict[int, bool] = {}  #: what the broker knows of each tag
        self.pending = set(range(1, published + 1))
        self.frames: list[tuple[str, int, bool]] = []

    def send(self, frame: bytes) -> None:
        method, args = decode_method(frame[7:-1])
        acked = method.name == "basic.ack"
        tag = args.delivery_tag
        self.frames.append((method.name, tag, args.multiple))
        assert tag in self.pending, f"{tag} has had its answer"
        answered = {tag}
        if args.multiple:
            answered = {other for other in self.pending if other <= tag}
        for other in answered:
            assert self.known.get(other) is acked, f"{other} was answered wrongly by {self.frames}"
        self.pending -= answered


def play(order: list[tuple[int, bool]], flushes: list[bool]) -> Publisher:
    """Answer tags in this order, each confirmed or refused; after some of them a turn ends."""
    publisher = Publisher(len(order))
    confirms = ChannelConfirms(cast(Any, publisher))
    for (tag, outcome), flush in zip(order, flushes, strict=True):
        publisher.known[tag] = outcome
        if outcome is CONFIRM:
            confirms.receipts.append(tag)
        else:
            confirms.refuse(tag)
        if flush:
            confirms.write()
    confirms.write()
    assert not publisher.pending
    assert confirms.outstanding(len(order)) == 0
    assert publisher.metrics.confirmed == sum(outcome for _, outcome in order)
    return publisher


def test_every_tag_has_one_answer_in_all_orders_of_four() -> None:
    for tags in permutations(range(1, 5)):
        for outcomes in product((CONFIRM, REFUSE), repeat=4):
            for flushes in product((True, False), repeat=4):
                play(list(zip(tags, outcomes, strict=True)), list(flushes))


@given(st.data(), st.integers(1, 40))
def test_every_tag_has_one_answer_in_any_order(data: st.DataObject, published: int) -> None:
    tags = data.draw(st.permutations(range(1, published + 1)))
    booleans = st.lists(st.booleans(), min_size=published, max_size=published)
    outcomes, flushes = data.draw(booleans), data.draw(booleans)

    play(list(zip(tags, outcomes, strict=True)), flushes)


@pytest.mark.parametrize(
    ("order", "frames"),
    [
        ([1, 2, 3], [("basic.ack", 3, True)]),
        ([3, 1, 2], [("basic.ack", 3, True)]),
        ([1, -2], [("basic.nack", 2, False), ("basic.ack", 1, False)]),
        ([1, -2, 3], [("basic.nack", 2, False), ("basic.ack", 3, True)]),
        ([-1, 2, 3], [("basic.nack", 1, False), ("basic.ack", 3, True)]),
    ],
)
def test_few_words_are_enough(order: list[int], frames: list[tuple[str, int, bool]]) -> None:
    answers = [(abs(tag), tag > 0) for tag in order]

    assert play(answers, [False] * len(order)).frames == frames


def test_nothing_is_told_on_a_channel_that_has_closed() -> None:
    publisher = Publisher(3)
    confirms = ChannelConfirms(cast(Any, publisher))
    publisher.known = {1: CONFIRM}
    confirms.receipts.append(1)

    confirms.close()
    confirms.receipts.append(2)
    confirms.write()
    confirms.refuse(3)

    assert publisher.frames == [("basic.ack", 1, False)]
