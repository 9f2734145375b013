"""Pauses of garbage collection: what is old is looked at seldom, and yet not forgotten."""

from __future__ import annotations

import gc
import weakref

from penstock.core.garbage_collection import COMPLETE_SECONDS, short_gc_pauses
from tests.broker.users.ground import Clock


class Node:
    def __init__(self) -> None:
        self.other: Node | None = None


def cycle() -> Node:
    one, two = Node(), Node()
    one.other, two.other = two, one
    return one


def test_what_a_collection_has_left_is_not_looked_at_by_the_next() -> None:
    with short_gc_pauses():
        kept = [[] for _ in range(10_000)]  # type: list[list[int]]
        gc.collect()

        assert len(gc.get_objects()) < len(kept)


def test_a_new_cycle_is_freed_by_the_next_collection() -> None:
    with short_gc_pauses():
        gc.collect()
        gone = weakref.ref(cycle())
        gc.collect()

        assert gone() is None


def test_an_old_cycle_is_freed_when_everything_is_looked_at() -> None:
    clock = Clock()
    with short_gc_pauses(clock):
        old = cycle()
        gc.collect()
        gone = weakref.ref(old)
        del old
        gc.collect()
        assert gone() is not None

        clock.now += COMPLETE_SECONDS
        gc.collect()
        assert gone() is None


def test_afterwards_everything_is_as_it_was() -> None:
    before = list(gc.callbacks)
    with short_gc_pauses():
        pass

    assert gc.callbacks == before
    assert gc.get_freeze_count() == 0
