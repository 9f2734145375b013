"""Where totals wrap when no profile says so."""

from __future__ import annotations

import pytest

from penstock.hives.steps.wraps import UNKNOWN, Top, learn, top_of


def test_the_profile_says_where() -> None:
    assert top_of(65535, UNKNOWN, 100) == Top(65535, True)


def test_a_total_above_the_profile_s_point_excludes_it() -> None:
    assert top_of(65503, UNKNOWN, 65504) == Top(65523, False)


def test_without_a_profile_it_is_the_default() -> None:
    assert top_of(UNKNOWN, UNKNOWN, 1000) == Top(65523, False)


def test_a_total_above_the_default_leaves_sixteen_bits() -> None:
    assert top_of(UNKNOWN, UNKNOWN, 65524) == Top(65535, True)


@pytest.mark.parametrize("top", [65503, 65523, 65535])
def test_a_wrap_between_two_reports_in_a_row_shows_where(top: int) -> None:
    assert learn(seen=top - 2, old=top - 2, new=1, other=1) == top


def test_a_wrap_in_an_outage_shows_nothing() -> None:
    assert learn(seen=65400, old=65400, new=80, other=150) == UNKNOWN


def test_points_below_what_was_seen_before_are_no_candidates() -> None:
    assert learn(seen=65520, old=65500, new=0, other=0) == UNKNOWN
