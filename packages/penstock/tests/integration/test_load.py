"""The books of `load.py` notice every broken promise: the crash tests stand on that."""

from __future__ import annotations

import pytest

from tests.integration.load import Books


@pytest.fixture
def books() -> Books:
    """Ten sent, eight confirmed; three acknowledged, two of those surely."""
    return Books(sent=10, confirmed=set(range(8)), acknowledging={0, 1, 2}, acknowledged={0, 1})


@pytest.mark.parametrize(
    "found",
    [
        [3, 4, 5, 6, 7],
        [2, 3, 4, 5, 6, 7],  # its acknowledgement may not have been heard
        [3, 4, 5, 6, 7, 8, 9],  # not confirmed, but kept all the same
    ],
)
def test_promises_that_were_kept(books: Books, found: list[int]) -> None:
    books.check(found)


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ([3, 4, 6, 7], "confirmed and lost"),
        ([], "confirmed and lost"),
        ([1, 3, 4, 5, 6, 7], "came back"),
        ([3, 4, 5, 7, 6], "out of order"),
        ([3, 4, 5, 6, 7, 7], "out of order, or twice"),
        ([3, 4, 5, 6, 7, 10], "never sent"),
    ],
)
def test_promises_that_were_broken(books: Books, found: list[int], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        books.check(found)
