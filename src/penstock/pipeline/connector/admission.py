"""How much of each stream a batch takes, and how that is divided among tasks. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from penstock.pipeline.brokers.contract import Range

#: Without `minPartitions`, a range is divided into parts of about so many messages: enough that a
#: task's own cost does not show, few enough to keep all cores busy.
PART_MESSAGES: Final = 131_072


def admit(start: Mapping[str, int], ends: Mapping[str, int], limit: int) -> dict[str, int]:
    """Where a batch of at most `limit` messages ends: each gives in proportion to what waits.

    Every stream that has messages gives at least one, so that none starves; only with more streams
    than `limit` does a batch exceed it.
    """
    waiting = {name: ends[name] - start[name] for name in ends if ends[name] > start[name]}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    # Whole shares first; what rounding left goes to the largest remainders.
    shares = {name: max(1, count * limit // total) for name, count in waiting.items()}
    left = limit - sum(shares.values())
    for name in sorted(waiting, key=lambda name: -(waiting[name] * limit % total)):
        if left > 0 and shares[name] < waiting[name]:
            shares[name] += 1
            left -= 1
    # What was given to those whose share was less than one, the largest have to do without.
    for name in sorted(shares, key=lambda name: -shares[name]):
        if left < 0:
            less = min(shares[name] - 1, -left)
            shares[name] -= less
            left += less
    return {name: start[name] + shares[name] if name in shares else ends[name] for name in ends}


def divide(ranges: Iterable[Range], minimum: int | None) -> list[Range]:
    """Parts of the ranges, one a task: at least `minimum`, as long as there are messages for it."""
    whole = [each for each in ranges if len(each) > 0]
    total = sum(len(each) for each in whole)
    parts: list[Range] = []
    for each in whole:
        if minimum is not None:
            count = -(-len(each) * minimum // total)
        else:
            count = -(-len(each) // PART_MESSAGES)
        parts += _parts(each, min(count, len(each)))
    return parts


def _parts(whole: Range, count: int) -> list[Range]:
    edges = [whole.start + len(whole) * index // count for index in range(count + 1)]
    return [Range(whole.stream, *edge) for edge in pairwise(edges)]
