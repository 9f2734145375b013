"""Whose turn it is, against the obvious way: look through all of them each time."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.broker.contract import Channel
from penstock.destinations.queue_consumers import QueueConsumers
from tests.doubles import Listener, Recorder


class ServedInTurn(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.consumers = QueueConsumers(single_active=False)
        self.round: list[tuple[int, Any]] = []  #: priority and channel, next one first
        self.all: dict[Any, int] = {}

    @rule(priority=st.integers(-1, 2))
    @precondition(lambda self: len(self.all) < 5)
    def add(self, priority: int) -> None:
        channel = Channel(Listener(), Recorder())
        self.consumers.add(channel, priority, False, "queue")
        self.all[channel] = priority

    @rule(which=st.integers(0, 4), credit=st.integers(1, 3))
    def ready(self, which: int, credit: int) -> None:
        for channel in list(self.all)[which : which + 1]:
            channel.credit = credit
            self.consumers.ready(channel)
            if (self.all[channel], channel) not in self.round:
                self.round.append((self.all[channel], channel))

    @rule(which=st.integers(0, 4))
    def pause(self, which: int) -> None:
        for channel in list(self.all)[which : which + 1]:
            channel.credit = 0
            self.consumers.pause(channel)
            self.round = [one for one in self.round if one[1] is not channel]

    @rule(which=st.integers(0, 4))
    def remove(self, which: int) -> None:
        for channel in list(self.all)[which : which + 1]:
            assert self.consumers.remove(channel) is None
            del self.all[channel]
            self.round = [one for one in self.round if one[1] is not channel]

    @rule()
    @precondition(lambda self: not self.round)
    def take_nothing(self) -> None:
        assert self.consumers.take() is None

    @rule()
    @precondition(lambda self: self.round)
    def take(self) -> None:
        top = max(priority for priority, _ in self.round)
        expected = next(one for one in self.round if one[0] == top)
        channel, credit = expected[1], expected[1].credit
        taken: Any = self.consumers.take()
        assert taken is channel
        assert channel.credit == credit - 1
        self.round.remove(expected)
        if credit > 1:
            self.round.append(expected)

    @invariant()
    def somebody_waits_if_anybody_would_take_a_message(self) -> None:
        assert bool(self.consumers.waiting) is bool(self.round)
        assert len(self.consumers) == len(self.all)
        assert list(self.consumers) == list(self.all)


TestServedInTurn = ServedInTurn.TestCase
TestServedInTurn.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
