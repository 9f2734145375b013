"""Who has to have a message before it is confirmed."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.log.observer import CommitWaiters
from penstock.cluster.in_sync_set import InSyncSet


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Records:
    """A coordinator that records, loses the answer, or says that another leads."""

    def __init__(self) -> None:
        self.members: frozenset[str] = frozenset()
        self.answer: bool | OSError = True
        self.seen: list[int] = []  # what was confirmed when a record was made
        self.confirmed: list[int] = []

    async def __call__(self, members: frozenset[str]) -> bool:
        self.seen.append(len(self.confirmed))
        if isinstance(self.answer, OSError):
            raise self.answer
        self.members = members
        return self.answer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def records() -> Records:
    return Records()


def new_set(records: Records, clock: Clock, *members: str, least: int = 1) -> InSyncSet:
    def report(error: Exception) -> None:
        raise error

    return InSyncSet(
        "a", members, record=records, report=report, min_in_sync=least, timeout=3.0, now=clock
    )


def wait(in_sync: InSyncSet, records: Records, sequence: int) -> None:
    waiters = CommitWaiters()
    waiters.callbacks.append((lambda: records.confirmed.append(sequence), None))
    in_sync.wait(sequence, waiters)


async def test_a_lone_leader_confirms_what_is_on_its_disk(records: Records, clock: Clock) -> None:
    in_sync = new_set(records, clock)
    wait(in_sync, records, 1)
    assert records.confirmed == [1]


async def test_every_member_must_have_it(records: Records, clock: Clock) -> None:
    in_sync = new_set(records, clock, "b", "c")
    wait(in_sync, records, 1)
    wait(in_sync, records, 2)
    in_sync.acknowledged("b", 2)
    assert records.confirmed == []
    in_sync.acknowledged("c", 1)
    assert records.confirmed == [1]
    in_sync.acknowledged("c", 2)
    assert records.confirmed == [1, 2]


async def test_a_silent_member_counts_until_its_removal_is_recorded(
    records: Records, clock: Clock
) -> None:
    in_sync = new_set(records, clock, "b")
    wait(in_sync, records, 1)
    clock.now = 10.0
    records.answer = OSError("no answer")
    assert await in_sync.update([])
    assert records.confirmed == []
    assert in_sync.members == {"a", "b"}
    records.answer = True
    assert await in_sync.update([])
    assert records.confirmed == [1]
    assert records.members == {"a"}
    assert records.seen == [0, 0]


async def test_the_recovery_of_a_new_leader_makes_nobody_silent(
    records: Records, clock: Clock
) -> None:
    in_sync = new_set(records, clock, "b")
    clock.now = 10.0
    in_sync.start()
    clock.now = 12.0
    assert await in_sync.update([])
    assert records.seen == []
    clock.now = 14.0
    assert await in_sync.update([])
    assert records.members == {"a"}


async def test_a_deposed_leader_confirms_nothing(records: Records, clock: Clock) -> None:
    in_sync = new_set(records, clock, "b")
    wait(in_sync, records, 1)
    clock.now = 10.0
    records.answer = False
    assert not await in_sync.update([])
    assert records.confirmed == []


async def test_a_member_joins_only_with_everything_that_was_confirmed(
    records: Records, clock: Clock
) -> None:
    in_sync = new_set(records, clock)
    wait(in_sync, records, 1)
    in_sync.acknowledged("b", 1)  # caught up …
    wait(in_sync, records, 2)  # … but this is confirmed without it
    assert await in_sync.update(["b"])
    assert in_sync.members == {"a"}
    wait(in_sync, records, 3)
    assert records.confirmed == [1, 2], "it counts from before it is recorded"
    in_sync.acknowledged("b", 2)
    assert await in_sync.update(["b"])
    assert in_sync.members == {"a", "b"} == records.members
    in_sync.acknowledged("b", 3)
    assert records.confirmed == [1, 2, 3]


async def test_a_member_whose_record_has_no_answer_counts(records: Records, clock: Clock) -> None:
    in_sync = new_set(records, clock)
    in_sync.acknowledged("b", 0)
    records.answer = OSError("no answer")
    assert await in_sync.update(["b"])
    wait(in_sync, records, 1)
    assert await in_sync.update([]), "it is gone, but may be recorded"
    assert records.confirmed == []
    records.answer = True
    assert await in_sync.update([])
    assert records.members == {"a"}
    assert records.confirmed == [1]


async def test_too_few_members_confirm_nothing(records: Records, clock: Clock) -> None:
    in_sync = new_set(records, clock, least=2)
    wait(in_sync, records, 1)
    assert in_sync.is_too_small
    assert records.confirmed == []
    in_sync.acknowledged("b", 1)
    assert await in_sync.update(["b"])
    assert in_sync.members == {"a", "b"}
    assert records.confirmed == [1]


async def test_receipts_of_one_channel_are_confirmed_in_order(
    records: Records, clock: Clock
) -> None:
    in_sync = new_set(records, clock, "b")
    confirmed: list[tuple[str, int]] = []

    class Terminal:
        def channel_confirm(self, channel: Any, receipt: int) -> None:
            confirmed.append((channel.name, receipt))

    class Channel:
        terminal = Terminal()

        def __init__(self, name: str) -> None:
            self.name = name

    one, other = Channel("one"), Channel("other")
    waiters = CommitWaiters()
    waiters.receipts = [(one, 1)]  # type: ignore[list-item]
    in_sync.wait(1, waiters)
    waiters = CommitWaiters()
    waiters.local = [(one, 2), (other, 1)]  # type: ignore[list-item]
    in_sync.wait(2, waiters)
    assert confirmed == [("other", 1)]
    in_sync.acknowledged("b", 2)
    assert confirmed == [("other", 1), ("one", 1), ("one", 2)]
