"""One measurement: a table of subscriptions filled, asked, changed while it is asked, and checked.

All figures are CPU time of this thread. What the matcher finds is compared with what going through
all subscriptions finds, for some publications of every run.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Final

from benchmarks.content.naive import Naive
from benchmarks.content.workloads import WORKLOADS, Make, quotes
from benchmarks.errors import WrongDelivery
from penstock.content.matching import Matcher
from penstock.content.matching.kernel import NativeKernel, build_kernel, load_kernel
from penstock.content.messages import Publication, Subscription

_CHECKED: Final = 3
_CHANGES: Final = 10_000
_TOGETHER: Final = 500


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates are per second of CPU."""

    workload: str
    subscriptions: int
    matches: float  #: per publication
    rate: float
    rate_with_changes: float  #: a subscription goes and another comes with every publication
    naive_rate: float
    inserted: float
    changed: float  #: pairs of insert and remove


def measure(
    workload: str,
    count: int,
    seconds: float = 2.0,
    seed: int = 1,
    kernel: NativeKernel | None = None,
) -> Figures:
    make = WORKLOADS[workload]
    random = Random(seed)
    subscriptions = [make(random) for _ in range(count)]
    gc.collect()
    gc.freeze()  # what lies there for the whole run is no garbage
    try:
        matcher: Matcher[int] = Matcher(kernel=lambda: kernel)
        inserted = count / _taken(lambda: _fill(matcher, subscriptions))
        naive = Naive(subscriptions)
        events = quotes(Random(seed + 1))
        naive_rate = _check(matcher, naive, events)
        matches, rate = _ask(matcher, events, seconds, iter(()))
        replacements = _replacements(make, count, seed + 2)
        _, rate_with_changes = _ask(matcher, events, seconds, replacements)
        changed = _change(matcher, list(islice(replacements, _CHANGES)))
    finally:
        gc.unfreeze()
    return Figures(workload, count, matches, rate, rate_with_changes, naive_rate, inserted, changed)


def compiled_kernel() -> NativeKernel | None:
    """The inner loops in C, made for this run alone."""
    with TemporaryDirectory() as directory:
        library = Path(directory) / "kernel.so"
        build_kernel(library)
        return load_kernel(library)


def _taken(work: Callable[[], object]) -> float:
    start = thread_time()
    work()
    return thread_time() - start


def _fill(matcher: Matcher[int], subscriptions: list[Subscription]) -> None:
    for key, subscription in enumerate(subscriptions):
        matcher.insert(key, subscription)


def _check(matcher: Matcher[int], naive: Naive, events: Iterator[Publication]) -> float:
    """How fast the naive way is; and that both find the same."""
    sample = list(islice(events, _CHECKED))
    start = thread_time()
    found = [naive.match(event) for event in sample]
    rate = len(sample) / (thread_time() - start)
    for event, wanted in zip(sample, found, strict=True):
        if sorted(matcher.match(event)) != wanted:
            raise WrongDelivery(f"the matcher finds something else for {event}")
    return rate


def _ask(
    matcher: Matcher[int],
    events: Iterator[Publication],
    seconds: float,
    changes: Iterator[tuple[int, int, Subscription]],
) -> tuple[float, float]:
    """Matches an event and events a second; the best third of the runs counts, for the rest is
    what others did on this machine."""
    asked = matched = 0
    spent = 0.0
    rates: list[float] = []
    while spent < seconds:
        batch = list(islice(events, 200))
        work = list(zip(batch, islice(changes, len(batch)), strict=False))
        start = thread_time()
        if work:
            for event, (old, new, subscription) in work:
                matched += len(matcher.match(event))
                matcher.remove(old)
                matcher.insert(new, subscription)
        else:
            for event in batch:
                matched += len(matcher.match(event))
        taken = thread_time() - start
        spent += taken
        asked += len(batch)
        rates.append(len(batch) / taken)
    return matched / asked, _best(rates)


def _best(rates: list[float]) -> float:
    best = sorted(rates)[-max(1, len(rates) // 3) :]
    return sum(best) / len(best)


def _replacements(make: Make, count: int, seed: int) -> Iterator[tuple[int, int, Subscription]]:
    """Without end: a key that goes, one that comes, and its subscription."""
    random = Random(seed)
    for old in itertools.count():
        yield old, old + count, make(random)


def _change(matcher: Matcher[int], changes: list[tuple[int, int, Subscription]]) -> float:
    """Pairs a second, of which the best third counts, too."""
    rates: list[float] = []
    for first in range(0, len(changes), _TOGETHER):
        some = changes[first : first + _TOGETHER]
        start = thread_time()
        for old, new, subscription in some:
            matcher.remove(old)
            matcher.insert(new, subscription)
        rates.append(len(some) / (thread_time() - start))
    return _best(rates)
