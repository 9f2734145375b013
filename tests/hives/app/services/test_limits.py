"""How much one caller may ask."""

from __future__ import annotations

import pytest

from penstock.hives.app.api.limits import Limits
from penstock.hives.app.domain.callers import ANONYMOUS, Caller
from penstock.hives.app.domain.errors import TooManyRequests
from penstock.hives.app.domain.roles import Role


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def known(number: int) -> Caller:
    return Caller(number, "u", Role.USER, "free")


def test_a_burst_passes_and_then_a_steady_rate() -> None:
    clock = Clock()
    limits = Limits(known=2, anonymous=1, burst=3, clock=clock)
    for _ in range(6):
        limits.take(known(1), "a")

    with pytest.raises(TooManyRequests) as refused:
        limits.take(known(1), "a")
    assert refused.value.retry_after == pytest.approx(0.5)

    clock.now = 0.5
    limits.take(known(1), "a")
    with pytest.raises(TooManyRequests):
        limits.take(known(1), "a")


def test_callers_do_not_spend_each_others() -> None:
    limits = Limits(known=1, anonymous=1, burst=1, clock=Clock())

    limits.take(known(1), "a")
    limits.take(known(2), "a")
    limits.take(ANONYMOUS, "a")
    limits.take(ANONYMOUS, "b")
    with pytest.raises(TooManyRequests):
        limits.take(ANONYMOUS, "b")
