"""Of many publishers each has its own order, and a broker may serve them in any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.errors import WrongDelivery
from benchmarks.harness.checker import Checker
from benchmarks.harness.order import Interleaved
from benchmarks.harness.rows import NUMBER, Column, Rows, Template, number

PUBLISHERS = 3
BATCH = 2
TOTAL = 40


def by_publisher() -> list[list[int]]:
    """Who wrote what: each BATCH in a row, then the next one's turn."""
    owners: list[list[int]] = [[] for _ in range(PUBLISHERS)]
    for sequence in range(TOTAL):
        owners[sequence // BATCH % PUBLISHERS].append(sequence)
    return owners


def check(arrived: list[int], capacity: int = 16) -> None:
    template = Template(b"\x30" + bytes(NUMBER), (Column(1, NUMBER, number),), 1, 1)
    checker = Checker(Rows(template, capacity), TOTAL, Interleaved(PUBLISHERS, BATCH, 1))
    stream = b"".join(b"\x30" + sequence.to_bytes(NUMBER) for sequence in arrived)
    while stream:
        room = checker.room()
        octets = min(len(room), len(stream), 50)
        room[:octets] = stream[:octets]
        checker.took(octets)
        stream = stream[octets:]
    checker.finish()


@st.composite
def servings(draw: st.DrawFn) -> list[int]:
    """Any order that keeps each publisher's own."""
    left = [list(reversed(own)) for own in by_publisher()]
    turns = draw(st.permutations([owner for owner, own in enumerate(left) for _ in own]))
    return [left[owner].pop() for owner in turns]


@given(servings())
def test_publishers_may_be_served_in_any_order(arrived: list[int]) -> None:
    check(arrived)


@given(servings(), st.integers(0, TOTAL - 1))
def test_a_message_out_of_its_publishers_order_is_noticed(arrived: list[int], at: int) -> None:
    owner = arrived[at] // BATCH % PUBLISHERS
    own = [index for index, n in enumerate(arrived) if n // BATCH % PUBLISHERS == owner]
    other = own[own.index(at) - 1]
    arrived[at], arrived[other] = arrived[other], arrived[at]

    with pytest.raises(WrongDelivery, match="out of order"):
        check(arrived)


@given(servings(), st.integers(0, TOTAL - 1))
def test_a_message_delivered_twice_is_noticed(arrived: list[int], at: int) -> None:
    arrived.insert(at, arrived[at])

    with pytest.raises(WrongDelivery, match=r"twice|41 of 40"):
        check(arrived)


@given(servings(), st.integers(0, TOTAL - 1))
def test_a_lost_message_is_noticed(arrived: list[int], at: int) -> None:
    del arrived[at]

    with pytest.raises(WrongDelivery, match=r"missing|39 of 40"):
        check(arrived)


def test_in_each_publishers_order_all_come_once() -> None:
    order = Interleaved(PUBLISHERS, BATCH, 0)
    rows = number(np.array([2, 3, 0, 1, 8, 4], np.uint64))

    assert order.expected(rows).tolist() == [2, 3, 0, 1, 8, 4]
