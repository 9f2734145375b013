"""Small rules of the domain: what is usual, cursors, tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.encoding import check_if_match, etag_of
from penstock_hives.errors import IfMatchFailed, InvalidRequest
from penstock_hives.occupancy.models import compare_with_usual
from penstock_hives.pagination import decode_cursor, encode_cursor, paginate


@pytest.mark.parametrize(
    ("occupancy", "typical", "relation"),
    [
        (79, 100.0, "quieter"),
        (80, 100.0, "as_usual"),
        (120, 100.0, "as_usual"),
        (121, 100.0, "busier"),
        (0, 3.0, "as_usual"),  # three people are no crowd
        (7, 3.0, "busier"),
    ],
)
def test_now_is_compared_with_the_same_hour_of_other_weeks(
    occupancy: int, typical: float, relation: str
) -> None:
    found = compare_with_usual(occupancy, "good", typical, 6)

    assert found is not None
    assert found.relation == relation


@pytest.mark.parametrize(
    ("quality", "typical", "weeks"), [("stale", 10.0, 6), ("good", None, None), ("good", 10.0, 1)]
)
def test_nothing_is_called_usual_without_knowing(
    quality: str, typical: float | None, weeks: int | None
) -> None:
    assert compare_with_usual(5, quality, typical, weeks) is None


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")), st.integers(-(2**62), 2**62))
def test_a_cursor_is_read_as_it_was_given(name: str, number: int) -> None:
    assert decode_cursor(encode_cursor([name, number]), str, int) == [name, number]


@given(st.text(max_size=60))
def test_what_no_page_has_given_is_refused(text: str) -> None:
    try:
        values = decode_cursor(text, str, int)
    except InvalidRequest:
        return
    assert values is None or [type(each) for each in values] == [str, int]


def test_a_page_says_where_it_ended_only_if_there_is_more() -> None:
    assert paginate([1, 2], 2, lambda n: [n]).next is None
    assert paginate([1, 2, 3], 2, lambda n: [n]).next == encode_cursor([2])


def test_a_change_needs_the_tag_of_what_is_there_if_any() -> None:
    value = {"name": "one"}
    check_if_match(value, None)
    check_if_match(value, "*")
    check_if_match(value, etag_of(b'{"name":"one"}'))
    with pytest.raises(IfMatchFailed):
        check_if_match(value, etag_of(b'{"name":"two"}'))
