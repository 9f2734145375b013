"""The best of what a subscription matches, window by window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.overlay.top_k import TopK
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from tests.overlay.simulation import Overlay


def through(best: TopK, prices: list[int]) -> list[list[int]]:
    """What goes out as each of these comes, by price."""
    out = []
    for price in prices:
        envelope = PadresEnvelope(EnvelopeKind.PUBLISH, str(price))
        out.append([int(one.text) for one in best.take(envelope, {"price": price})])
    return out


def test_of_each_tumbling_window_the_best_go_out() -> None:
    best = TopK("price", k=2, window=4, shift=4)
    assert through(best, [5, 9, 1, 7, 2, 2, 8, 3]) == [[]] * 3 + [[9, 7]] + [[]] * 3 + [[8, 3]]


def test_of_a_sliding_window_each_goes_out_once() -> None:
    best = TopK("price", k=1, window=3, shift=1)
    assert through(best, [1, 5, 2, 3, 4]) == [[], [], [5], [], [4]]


def test_the_least_may_be_best() -> None:
    assert through(TopK("-price", 1, 3, 3), [5, 2, 9]) == [[], [], [2]]


def test_what_cannot_be_compared_is_not_counted() -> None:
    best = TopK("price", 1, 1, 1)
    assert best.take(PadresEnvelope(EnvelopeKind.PUBLISH, ""), {"price": "dear"}) == []
    assert best.take(PadresEnvelope(EnvelopeKind.PUBLISH, ""), {}) == []


@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.integers(1, 5),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_it_is_as_if_each_window_were_sorted(
    prices: list[int], k: int, window: int, shift: int
) -> None:
    k, shift = min(k, window), min(shift, window)
    expected, sent = [], set()
    for end in range(1, len(prices) + 1):
        out = []
        if end >= window and (end - window) % shift == 0:
            numbers = sorted(range(end - window, end), key=lambda n: (-prices[n], n))[:k]
            out = [prices[n] for n in numbers if n not in sent]
            sent.update(numbers)
        expected.append(out)
    assert through(TopK("price", k, window, shift), prices) == expected


def test_a_subscription_may_ask_for_it() -> None:
    overlay = Overlay([("B1", "B2")])
    publisher, subscriber = overlay.person("B1", "p"), overlay.person("B2", "s")
    publisher.advertise("[class,eq,stock],[price,>,0]")
    overlay.settle()
    options = (("topk", "price"), ("k", "1"), ("window", "3"), ("shift", "3"))
    subscriber.subscribe("[class,eq,stock]", options=options)
    overlay.settle()
    for price in (4, 6, 5, 1, 2):
        publisher.publish(f"[class,stock],[price,{price}]")
        overlay.settle()
    assert subscriber.texts() == ["[class,stock],[price,6]"]


@pytest.mark.parametrize(
    "options",
    [
        (("topk", ""),),
        (("topk", "price"), ("k", "0")),
        (("topk", "price"), ("k", "3"), ("window", "2")),
        (("topk", "price"), ("shift", "11")),
        (("topk", "price"), ("k", "two")),
    ],
)
def test_what_makes_no_sense_is_refused(options: tuple[tuple[str, str], ...]) -> None:
    person = Overlay([]).person("B1", "s")
    with pytest.raises(Exception, match=r"topk must name|integers"):
        person.subscribe("[class,eq,stock]", options=options)
