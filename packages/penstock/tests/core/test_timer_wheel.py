"""Timers that share one of the loop: never early, little late, cancelled by removal."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.timer_wheel import TimerWheel


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time the test sets; it notes when it was asked to call."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.calls: list[tuple[float, Any, tuple[Any, ...]]] = []
        self.failures: list[dict[str, Any]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any, **_: Any) -> Any:  # type: ignore[override]
        self.calls.append((when, callback, args))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def run(self) -> None:
        for when, callback, args in sorted(self.calls, key=lambda call: call[0]):
            self.now = when
            callback(*args)
        self.calls.clear()


class Entry:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.fired_at: list[float] = []

    def on_timer(self) -> None:
        self.fired_at.append(self._clock.now)


class Failing(Entry):
    def on_timer(self) -> None:
        raise ValueError("broken")


@given(st.floats(0.001, 1e6))
def test_a_timer_fires_once_never_early_and_little_late(seconds: float) -> None:
    clock = Clock()
    entry = Entry(clock)
    TimerWheel(clock).start(entry, seconds)
    due = clock.now + seconds
    clock.run()
    clock.close()
    [fired] = entry.fired_at
    assert due <= fired <= due + seconds / 128


def test_timers_of_about_the_same_time_share_one_of_the_loop() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)
    entries = [Entry(clock) for _ in range(1000)]
    for entry in entries:
        wheel.start(entry, 90.0)
        clock.now += 0.001
    assert len(clock.calls) <= 4
    clock.run()
    assert all(len(entry.fired_at) == 1 for entry in entries)
    clock.close()


def test_what_is_removed_does_not_fire_not_even_while_its_bucket_does() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)
    first, second = Entry(clock), Entry(clock)
    bucket = wheel.start(first, 10.0)

    class Canceller(Entry):
        def on_timer(self) -> None:
            super().on_timer()
            bucket.pop(first, None)

    canceller = Canceller(clock)
    assert wheel.start(second, 10.0) is bucket
    wheel.start(canceller, 10.0)
    bucket.pop(second)
    clock.run()
    assert (first.fired_at, second.fired_at, len(canceller.fired_at)) == ([], [], 1)
    clock.close()


def test_a_timer_that_fails_does_not_stop_the_others() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)
    entry = Entry(clock)
    for one in (Failing(clock), entry, Failing(clock)):
        wheel.start(one, 5.0)
    clock.run()
    assert len(entry.fired_at) == 1
    assert [str(failure["exception"]) for failure in clock.failures] == ["broken"] * 2
    clock.close()
