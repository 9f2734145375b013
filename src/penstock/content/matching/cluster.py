"""A cluster: filters that are asked together, few one by one and many in blocks.

New filters wait in a short list that is gone through one by one; a word of them at a time goes into
a block. So inserting costs little, is seen at once, and nothing ever stops to be built anew, but
for a block that has filled up and becomes one of twice its size, up to some thousand filters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.content.matching.block import WORD, Block, Choice
from penstock.content.matching.entries import Entry, look
from penstock.content.matching.event import Event
from penstock.content.matching.kernel import Kernel

#: A block's room, at first and at most.
_SMALLEST: Final = 128
_LARGEST: Final = 1 << 15


class Cluster:
    __slots__ = ("_blocks", "_kernel", "_waiting")

    def __init__(self, kernel: Kernel | None = None) -> None:
        self._kernel = kernel
        self._waiting: dict[Any, Entry] = {}
        self._blocks: list[Block] = []

    def __len__(self) -> int:
        return len(self._waiting) + sum(block.count for block in self._blocks)

    def insert(self, entry: Entry) -> None:
        entry.cluster = self
        self._waiting[entry.key] = entry
        if len(self._waiting) >= WORD:
            self._flush()

    def remove(self, entry: Entry) -> None:
        if entry.block is None:
            del self._waiting[entry.key]
            return
        block = entry.block
        for moving in block.remove(entry):
            self._waiting[moving.key] = moving
        if not block.count:
            self._blocks.remove(block)
        if len(self._waiting) >= WORD:
            self._flush()

    def _flush(self) -> None:
        """Put what waits into blocks, as far as it fills words."""
        waiting = list(self._waiting.values())
        whole = len(waiting) // WORD * WORD
        self._waiting = {entry.key: entry for entry in waiting[whole:]}
        for start in range(0, whole, WORD):
            self._put(waiting[start : start + WORD])

    def _put(self, word: list[Entry]) -> None:
        for block in self._blocks:
            if block.takes(word):
                return
        growing = self._growing()
        if growing is None:
            self._blocks.append(Block(word, _SMALLEST, self._kernel))
            return
        self._blocks.remove(growing)
        entries = growing.entries() + word
        whole = len(entries) // WORD * WORD
        capacity = growing.capacity if whole * 4 < growing.capacity * 3 else growing.capacity * 2
        self._blocks.append(Block(entries[:whole], min(capacity, _LARGEST), self._kernel))
        for entry in entries[whole:]:
            entry.block = None
            self._waiting[entry.key] = entry

    def _growing(self) -> Block | None:
        """A block that may be made anew to have room for more."""
        for block in self._blocks:
            if block.count + WORD <= _LARGEST * 3 // 4 or block.capacity < _LARGEST:
                return block
        return None

    def candidates(self, choose: Choice) -> Iterator[Entry]:
        """All that wait, and of blocks those that are chosen."""
        yield from self._waiting.values()
        for block in self._blocks:
            yield from block.candidates(choose)

    def match(self, event: Event, found: list[Any]) -> None:
        """Add the keys of all that an event meets."""
        look(self._waiting.values(), event, found)
        for block in self._blocks:
            block.match(event, found)
