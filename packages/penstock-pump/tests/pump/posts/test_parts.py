"""Parts: what is cut covers the file, once, in order; what lies is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pump.errors import BadPost
from penstock_pump.posts.parts import (
    THRESHOLD,
    Parts,
    automatic_block_size,
    part_name,
    read_parts,
    split_blocks,
)

sizes = st.integers(0, 1 << 40)


@given(sizes, st.integers(1, 1 << 30))
def test_blocks_cover_the_file_without_gap_or_overlap(file_size: int, block_size: int) -> None:
    block_size = max(block_size, file_size // 500)
    at = 0
    for parts in split_blocks(file_size, block_size):
        assert parts.offset == at
        assert parts.file_size == file_size
        at += parts.length
    assert at == file_size


@given(sizes, st.integers(1, 1 << 30))
def test_what_is_written_is_read_again(file_size: int, block_size: int) -> None:
    block_size = max(block_size, file_size // 50)
    for parts in split_blocks(file_size, block_size):
        assert read_parts(str(parts)) == parts


@given(st.text(max_size=40))
def test_any_text_is_parts_or_a_bad_post(text: str) -> None:
    try:
        parts = read_parts(text)
    except BadPost:
        return
    assert 0 <= parts.offset <= parts.file_size
    assert parts.offset + parts.length <= parts.file_size


def test_the_example_seen_on_the_wire() -> None:
    assert [str(parts) for parts in split_blocks(5_300_000, 1_048_576)] == [
        f"i,1048576,6,57120,{number}" for number in range(6)
    ]


def test_a_file_no_larger_than_a_block_is_whole() -> None:
    assert list(split_blocks(10, 10)) == [Parts.whole(10)]
    assert str(Parts.whole(0)) == "1,0,1,0,0"


def test_one_block_with_method_p_is_the_whole_file_as_in_the_seed() -> None:
    assert read_parts("p,457,1,0,0").single


@pytest.mark.parametrize(
    "lie",
    [
        "i,10,3,0,3",  # a block there is not
        "i,10,3,10,0",  # a last block as long as the others
        "i,10,3,11,0",
        "i,10,0,0,0",
        "i,0,2,0,0",
        "1,10,2,0,0",
        "x,10,1,0,0",
        "i,-1,1,0,0",
        "i,1.5,1,0,0",
        "i,10,3,0",
        "i,10,3,0,0,0",
        "i,٣,3,0,0",
        "",
        "i,9999999999999999999,9,0,0",
        "i,99999999999999999999999,1,0,0",
    ],
)
def test_parts_that_lie_are_refused(lie: str) -> None:
    with pytest.raises(BadPost):
        read_parts(lie)


def test_automatic_block_sizes() -> None:
    assert automatic_block_size(THRESHOLD) == 0
    assert automatic_block_size(THRESHOLD + 1) == -(-(THRESHOLD + 1) // 3)
    assert automatic_block_size(10 * THRESHOLD + 1) == -(-(10 * THRESHOLD + 1) // 10)
    assert automatic_block_size(100 * THRESHOLD + 1) == 10 * THRESHOLD


def test_a_part_file_says_which_part_it_is() -> None:
    assert part_name("big", Parts("p", 10, 3, 5, 2), "d") == "big.10.3.5.2.d.Part"
