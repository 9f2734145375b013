"""Retained messages against the obvious: a dictionary, and a pattern tried on each key.

Whatever is kept, replaced, forgotten and outlived in whatever order, over restarts and kills, what
is retained is what the dictionary has. Segments are small here, so that compaction is always near.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.destinations.retained.given import body_of, killed, large, note, retained
from tests.destinations.retained.test_topic_tree import keys, matches, patterns
from tests.doubles import Stand

bodies = st.binary(min_size=1, max_size=60)


class RetainedAgainstDictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.now = 1_000_000
        self.kept: dict[bytes, tuple[bytes, int]] = {}  #: bodies, and when they end, or 0
        self.volatile: set[bytes] = set()

    @initialize()
    def begin(self) -> None:
        self.clock = patch("time.time_ns", lambda: self.now * 1_000_000)
        self.clock.start()
        self.stand = Stand(self.folder, self.loop, segment_bytes=2048)
        self.store = retained(self.stand)

    @rule(key=keys, body=bodies, ttl=st.one_of(st.just(0), st.integers(1, 5000)))
    def keep(self, key: bytes, body: bytes, ttl: int) -> None:
        expiration = str(ttl) if ttl else None
        self.store.retain(note(key, body, expiration=expiration))
        self.kept[key] = (body, self.now + ttl if ttl else 0)
        self.volatile.discard(key)

    @rule(key=keys, body=bodies)
    def keep_large(self, key: bytes, body: bytes) -> None:
        self.store.retain(large(self.stand, key.decode(), body))
        self.kept[key] = (body, 0)
        self.volatile.discard(key)

    @rule(key=keys, body=bodies)
    def keep_volatile(self, key: bytes, body: bytes) -> None:
        self.store.retain(note(key, body), volatile=True)
        self.kept[key] = (body, 0)
        self.volatile.add(key)

    @rule(key=keys, count=st.integers(10, 60))
    def churn(self, key: bytes, count: int) -> None:
        for number in range(count):
            self.keep(key, b"%d" % number * 10, 0)
            if number % 7 == 0:
                self.stand.kernel.write_batch.flush()

    @rule(key=keys)
    def forget(self, key: bytes) -> None:
        self.store.remove(key)
        self.kept.pop(key, None)

    @rule(milliseconds=st.integers(1, 3000))
    def wait(self, milliseconds: int) -> None:
        self.sync()  # a record has the time of its turn
        self.now += milliseconds
        self.stand.clock.advance(milliseconds / 1000)
        self.kept = {key: (body, end) for key, (body, end) in self.kept.items()
                     if not 0 < end <= self.now}  # fmt: skip

    @rule()
    def sync(self) -> None:
        self.loop.run_until_complete(self.stand.synced())

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.sync()
        self.forget_volatile()
        self.store = retained(self.stand)

    @rule()
    def kill(self) -> None:
        self.stand.kernel.write_batch.flush()
        copy = killed(self.stand, self.store)
        copy.close()
        self.store.close()
        self.sync()
        shutil.rmtree(self.folder / "retained")
        (self.folder / "copy").rename(self.folder / "retained")
        self.forget_volatile()
        self.store = retained(self.stand)

    def forget_volatile(self) -> None:
        for key in self.volatile:
            self.kept.pop(key, None)
        self.volatile.clear()

    @rule(pattern=patterns)
    def match(self, pattern: bytes) -> None:
        found = [key for key in self.store.match(pattern) if self.store.get(key) is not None]
        assert sorted(found) == sorted(key for key in self.kept if matches(pattern, key))

    @invariant()
    def holds_what_the_dictionary_does(self) -> None:
        for key, (body, _) in self.kept.items():
            assert body_of(self.store.get(key)) == body
        live = [key for key in self.store._index if self.store.get(key) is not None]
        assert len(live) == len(self.store) == len(self.kept)
        assert self.store.bytes == sum(len(body) for body, _ in self.kept.values())

    def teardown(self) -> None:
        self.clock.stop()
        assert self.stand.reports == []
        self.store.close()
        self.loop.run_until_complete(self.stand.close())
        self.loop.close()
        shutil.rmtree(self.folder)


TestRetainedAgainstDictionary = RetainedAgainstDictionary.TestCase
TestRetainedAgainstDictionary.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
