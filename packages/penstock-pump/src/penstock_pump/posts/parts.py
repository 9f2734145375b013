"""Parts of a file: which block a post is about, and where that block is in the file.

`method,bsz,blktot,brem,bno` as in sr_post(7): `count` blocks of `size` bytes, the last one
`remainder` bytes long unless that is 0; `number` counts from 0. Method `1` is a whole file, `i` a
block written into one file, `p` a block stored as a part file. Inconsistent sizes are refused on
construction, so the arithmetic can rely on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

from penstock.core.units import MiB
from penstock_pump.errors import BadPost

WHOLE: Final = "1"
INPLACE: Final = "i"
PARTITIONED: Final = "p"

#: Sarracenia divides larger files by itself.
THRESHOLD: Final = 50 * MiB
#: The largest signed 64-bit offset.
_LARGEST: Final = (1 << 63) - 1
_SPELLED: Final = re.compile(r"([^,]*)" + r",([0-9]{1,19})" * 4)


@dataclass(frozen=True, slots=True)
class Parts:
    method: str
    size: int
    count: int = 1
    remainder: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        if self.method not in (WHOLE, INPLACE, PARTITIONED):
            raise BadPost(f"parts method {self.method!r} should be 1, i or p")
        if min(self.size, self.remainder, self.number) < 0 or self.count < 1:
            raise BadPost(f"parts {self}: numbers must not be negative, and count at least 1")
        if self.number >= self.count:
            raise BadPost(f"parts {self}: block {self.number} of {self.count}")
        if self.remainder and self.remainder >= self.size:
            raise BadPost(f"parts {self}: the last block is longer than the others")
        if self.count > 1 and (self.method == WHOLE or self.size == 0):
            raise BadPost(f"parts {self}: a whole file has one block, and blocks are not empty")
        if self.size * self.count > _LARGEST:
            raise BadPost(f"parts {self}: the file would be too large")

    @classmethod
    def whole(cls, size: int) -> Self:
        return cls(WHOLE, size)

    @property
    def single(self) -> bool:
        """Whether the block is the file. An example of sr_post(7) has one block and method p."""
        return self.count == 1

    @property
    def offset(self) -> int:
        return self.number * self.size

    @property
    def length(self) -> int:
        last = self.number == self.count - 1
        return self.remainder if last and self.remainder else self.size

    @property
    def file_size(self) -> int:
        if self.remainder:
            return self.size * (self.count - 1) + self.remainder
        return self.size * self.count

    def __str__(self) -> str:
        return f"{self.method},{self.size},{self.count},{self.remainder},{self.number}"


def read_parts(text: str) -> Parts:
    found = _SPELLED.fullmatch(text)
    if found is None:
        raise BadPost(f"parts {text[:80]!r} should be METHOD,SIZE,COUNT,REMAINDER,NUMBER")
    method, size, count, remainder, number = found.groups()
    return Parts(method, int(size), int(count), int(remainder), int(number))


def split_blocks(file_size: int, block_size: int, method: str = INPLACE) -> Iterator[Parts]:
    """The blocks of a file in order."""
    if block_size <= 0 or file_size <= block_size:
        yield Parts.whole(file_size)
        return
    whole_blocks, remainder = divmod(file_size, block_size)
    count = whole_blocks + (1 if remainder else 0)
    first = Parts(method, block_size, count, remainder, 0)
    for number in range(count):
        yield replace(first, number=number)


def automatic_block_size(file_size: int) -> int:
    """Sarracenia's `blocksize 0`: small files whole, then thirds, then tenths, then blocks of ten
    times the threshold. 0 means a whole file."""
    if file_size > 100 * THRESHOLD:
        return 10 * THRESHOLD
    if file_size > 10 * THRESHOLD:
        return -(-file_size // 10)
    if file_size > THRESHOLD:
        return -(-file_size // 3)
    return 0


def part_name(name: str, parts: Parts, sum_method: str) -> str:
    return f"{name}.{parts.size}.{parts.count}.{parts.remainder}.{parts.number}.{sum_method}.Part"
