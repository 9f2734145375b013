"""The checker finds each kind of violation, and nothing in a history without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .checker import History, Leader, check


def sound() -> History:
    history = History()
    history.confirm("q", "1", Leader(1, "a"), 1.0)
    history.confirm("q", "2", Leader(2, "b"), 9.0)
    history.final["q"] = {"2"}
    history.acknowledged["1"] = (2.0, 7)
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
    history.returned.append("1")


def stay_away(history: History) -> None:
    history.confirm_times.pop()


@pytest.mark.parametrize("spoil", [lose, lead_twice, change_offset, give_back, stay_away])
def test_a_violation_is_found(spoil: Callable[[History], None]) -> None:
    history = sound()
    spoil(history)
    assert len(check(history, 10.0)) == 1


def test_an_acknowledgement_of_the_last_moment_may_be_lost() -> None:
    history = sound()
    history.returned.append("1")
    history.broken[7] = 2.5
    assert check(history) == []
