"""The checker finds each kind of violation, and nothing in a history without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .checker import ConsumerEvent, History, Leader, check


def sound() -> History:
    history = History()
    history.confirm("q", "1", Leader(1, "a"), 1.0)
    history.confirm("q", "2", Leader(2, "b"), 9.0)
    history.final["q"] = {"2"}
    history.consumed = [ConsumerEvent("delivered", 7, "1"), ConsumerEvent("acknowledged", 7, "1")]
    history.reads = [("one", 0, "x"), ("two", 0, "x")]
    history.deaths = [3.0]
    return history


def test_a_sound_history_passes() -> None:
    assert check(sound(), 10.0) == []


def lose(history: History) -> None:
    history.final["q"].clear()


def lead_twice(history: History) -> None:
    history.leaders.add(Leader(1, "b"))


def change_offset(history: History) -> None:
    history.reads.append(("two", 0, "y"))


def give_back(history: History) -> None:
    history.consumed.append(ConsumerEvent("delivered", 7, "1"))


def give_back_what_was_replicated(history: History) -> None:
    history.consumed += [
        ConsumerEvent("confirmed", 7),
        ConsumerEvent("lost", 7),
        ConsumerEvent("delivered", 8, "1"),
    ]


def receive_twice(history: History) -> None:
    history.once += ["1", "2", "1"]


def lose_session(history: History) -> None:
    history.lost_sessions.append("subscriber")


def stay_away(history: History) -> None:
    history.confirm_times.pop()


@pytest.mark.parametrize(
    "spoil",
    [
        lose,
        lead_twice,
        change_offset,
        give_back,
        give_back_what_was_replicated,
        receive_twice,
        lose_session,
        stay_away,
    ],
)
def test_a_violation_is_found(spoil: Callable[[History], None]) -> None:
    history = sound()
    spoil(history)
    assert len(check(history, 10.0)) == 1


def test_an_acknowledgement_that_nothing_confirmed_may_be_lost_with_its_connection() -> None:
    history = sound()
    history.consumed += [ConsumerEvent("lost", 7), ConsumerEvent("delivered", 8, "1")]
    assert check(history) == []
