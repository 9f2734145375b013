"""How much a batch takes of each stream, and how it is divided."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock_spark.connector.batch_reader import (
    PARTITION_MESSAGES,
    limit_end_offsets,
    split_ranges,
)
from penstock_spark.streams.backend import StreamRange

backlogs = st.dictionaries(
    st.sampled_from("abcdef"), st.tuples(st.integers(0, 1000), st.integers(0, 5000))
)


@given(backlogs, st.integers(1, 6000))
@example({"a": (0, 1), "b": (0, 1), "c": (0, 4)}, 3)
def test_a_batch_takes_as_much_as_it_may_and_starves_nobody(
    streams: dict[str, tuple[int, int]], limit: int
) -> None:
    start = {name: begin for name, (begin, _) in streams.items()}
    ends = {name: begin + count for name, (begin, count) in streams.items()}

    admitted = limit_end_offsets(start, ends, limit)

    waiting = [name for name in streams if ends[name] > start[name]]
    taken = {name: admitted[name] - start[name] for name in streams}
    available = sum(ends[name] - start[name] for name in streams)
    assert all(0 <= taken[name] <= ends[name] - start[name] for name in streams)
    assert all(taken[name] >= 1 for name in waiting)
    assert sum(taken.values()) <= max(limit, len(waiting))
    assert sum(taken.values()) >= min(limit, available)


def test_streams_give_in_proportion_to_what_waits() -> None:
    admitted = limit_end_offsets({"a": 0, "b": 100, "c": 7}, {"a": 900, "b": 200, "c": 7}, 100)

    assert admitted == {"a": 90, "b": 110, "c": 7}


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5000)), max_size=5),
    st.none() | st.integers(1, 40),
)
def test_parts_are_the_ranges_and_nothing_else(
    given_ranges: list[tuple[int, int]], minimum: int | None
) -> None:
    ranges = [
        StreamRange(f"s{i}", start, start + size) for i, (start, size) in enumerate(given_ranges)
    ]

    parts = split_ranges(ranges, minimum)

    whole = {(each.stream, offset) for each in ranges for offset in range(each.start, each.stop)}
    covered = [(each.stream, offset) for each in parts for offset in range(each.start, each.stop)]
    assert len(covered) == len(whole)
    assert set(covered) == whole
    assert all(len(part) > 0 for part in parts)
    if minimum is not None:
        assert len(parts) >= min(minimum, len(whole))


def test_a_large_range_is_divided_unasked() -> None:
    parts = split_ranges([StreamRange("s", 5, 5 + 3 * PARTITION_MESSAGES)], None)

    assert [len(part) for part in parts] == [PARTITION_MESSAGES] * 3
