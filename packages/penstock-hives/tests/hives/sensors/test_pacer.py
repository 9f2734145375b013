"""Frames are due when they were, or so many times sooner."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigurationError
from penstock_hives.sensors.publisher import FramePacer, parse_speed

FIRST = 1_700_000_000_000


@pytest.mark.parametrize(("speed", "left"), [(1.0, 60.0), (60.0, 1.0), (0.5, 120.0), (None, 0.0)])
def test_a_minute_lasts_as_long_as_the_speed_says(speed: float | None, left: float) -> None:
    assert FramePacer(FIRST, speed, lambda: 7.0).left(FIRST + 60_000) == left


def test_time_that_has_passed_is_not_waited_for() -> None:
    times = iter((0.0, 45.0))
    assert FramePacer(FIRST, 1.0, lambda: next(times)).left(FIRST + 60_000) == 15.0


@pytest.mark.parametrize(("text", "speed"), [("60x", 60.0), ("0.5", 0.5), ("max", None)])
def test_speeds_as_people_write_them(text: str, speed: float | None) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["", "x", "0", "-1x", "fast", "inf", "nan"])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="60x"):
        parse_speed(text)
