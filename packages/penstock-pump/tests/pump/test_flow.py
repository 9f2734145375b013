"""The loop of those that hear posts: order, retries, what is told; and what winnowing remembers."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.retry import RetryPolicy
from penstock_pump.duplicates import DuplicateFilter, FingerprintStore, fingerprint
from penstock_pump.errors import OutsideDirectory, SourceUnavailable
from penstock_pump.flow import consumer as consumer_module
from penstock_pump.flow.consumer import (
    ConsumerLimits,
    FileOrder,
    PostConsumer,
    RetryEntry,
    RetryStore,
    ordering_keys,
)
from penstock_pump.flow.message import PumpMessage, message_from_json, message_to_json
from penstock_pump.flow.publisher import shard
from penstock_pump.flow.subscription import AckBatcher, MergedSubscription, PumpSubscription
from penstock_pump.handlers import Provenance, removal_of_move, with_provenance
from penstock_pump.posts import Checksum, Parts, Post
from penstock_pump.posts.checksums import directory_sum, removal_sum
from penstock_pump.posts.post import FileEvent
from penstock_pump.posts.reports import REJECTED, PostOutcome


def post(path: str = "f", **facts: Any) -> Post:
    return Post(moment=0, base_url="http://h/", relpath=path, **facts)


class Acked:
    """Keeps `Heard`."""

    def __init__(self, pump_message: PumpMessage) -> None:
        self.pump_message = pump_message
        self.acked = asyncio.Event()

    async def ack(self) -> None:
        self.acked.set()


class Given:
    """Hears the messages it was made with, and notes which were acknowledged."""

    def __init__(self, *bodies: str) -> None:
        self.heard = [Acked(PumpMessage("v02.post", body.encode())) for body in bodies]
        self._new = list(self.heard)

    async def receive(self) -> list[Acked]:
        if not self._new:
            await asyncio.Event().wait()
        new, self._new = self._new, []
        return new

    async def done(self) -> None:
        async with asyncio.timeout(30):
            for each in self.heard:
                await each.acked.wait()


LIMITS = ConsumerLimits(
    attempts=2, retry=RetryPolicy(first=0.0), backoff=RetryPolicy(first=0.01, longest=0.02)
)


async def run(consumer: PostConsumer, given: Given, until: asyncio.Event | None = None) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(consumer.run(cast(PumpSubscription, given), stop))
    await given.done()
    if until is not None:
        await asyncio.wait_for(until.wait(), 30)
    stop.set()
    await asyncio.wait_for(task, 30)


def line(path: str) -> str:
    return f"20240101000000 http://h/ {path}"


async def test_what_is_about_one_file_happens_in_order_and_the_rest_at_the_same_time() -> None:
    done: list[str] = []
    slow = asyncio.Event()

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        number = len(done)
        if post.relpath == "a" and "a" not in done:
            await slow.wait()
        done.append(post.relpath)
        if post.relpath == "b":
            slow.set()
        return PostOutcome(201, str(number))

    given = Given(line("a"), line("a"), line("b"))
    await run(PostConsumer(work, retries=None), given)
    assert done == ["b", "a", "a"]


async def test_what_fails_in_passing_is_tried_at_once_and_then_written_down(
    tmp_path: Path,
) -> None:
    attempts = 0
    finished = asyncio.Event()
    told: list[int] = []

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        nonlocal attempts
        attempts += 1
        if attempts < 5:
            raise SourceUnavailable("away")
        finished.set()
        return PostOutcome(201, "")

    async def tell(post: Post, outcome: PostOutcome, seconds: float) -> None:
        told.append(outcome.code)

    retries = RetryStore(tmp_path / "retry.db")
    consumer = PostConsumer(work, retries=retries, limits=LIMITS, on_outcome=tell)
    await run(consumer, Given(line("f")), finished)
    assert attempts == 5
    assert told == [503, 503, 503, 201]
    assert consumer.counters.postponed == 1
    assert len(retries) == 0
    retries.close()


async def test_retries_have_their_turn_however_little_may_be_done_at_a_time(
    tmp_path: Path,
) -> None:
    finished = asyncio.Event()
    attempts = 0

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise SourceUnavailable("away")
        assert pump_message.redelivered
        finished.set()
        return PostOutcome(201, "")

    retries = RetryStore(tmp_path / "retry.db")
    limits = ConsumerLimits(concurrency=1, attempts=1, backoff=RetryPolicy(first=0.01))
    await run(PostConsumer(work, retries=retries, limits=limits), Given(line("f")), finished)
    retries.close()


async def test_what_cannot_succeed_is_told_and_done_with(tmp_path: Path) -> None:
    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        raise OutsideDirectory("..")

    retries = RetryStore(tmp_path / "retry.db")
    consumer = PostConsumer(work, retries=retries, limits=LIMITS)
    await run(consumer, Given(line("f"), "no post"))
    assert consumer.counters.codes == {417: 2}
    assert len(retries) == 0
    retries.close()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    ],
    ids=["too long", "no UTF-8"],
)
async def test_a_name_no_file_can_have_is_not_tried_again(tmp_path: Path, error: Exception) -> None:
    attempts: list[str] = []

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        attempts.append(post.relpath)
        raise error

    retries = RetryStore(tmp_path / "retry.db")
    consumer = PostConsumer(work, retries=retries, limits=LIMITS)
    await run(consumer, Given(line("f")))
    assert (attempts, consumer.counters.codes, len(retries)) == (["f"], {417: 1}, 0)
    retries.close()


@pytest.mark.parametrize("retrying", [True, False])
@pytest.mark.parametrize("error", [SourceUnavailable("away"), OutsideDirectory("..")], ids=repr)
async def test_what_failed_for_good_is_abandoned_once(
    error: Exception, retrying: bool, tmp_path: Path
) -> None:
    abandoned: list[str] = []
    done = asyncio.Event()

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        if post.relpath == "good":
            return PostOutcome(201, "Downloaded")
        assert abandoned == []
        raise error

    async def abandon(post: Post) -> None:
        abandoned.append(post.relpath)
        done.set()

    retries = RetryStore(tmp_path / "retry.db") if retrying else None
    limits = ConsumerLimits(
        attempts=2, retry=RetryPolicy(first=0.0), backoff=RetryPolicy(first=0.01, total=0.0)
    )
    consumer = PostConsumer(work, retries=retries, limits=limits, on_abandon=abandon)
    await run(consumer, Given(line("good"), line("f")), done)
    assert abandoned == ["f"]
    if retries is not None:
        retries.close()


async def test_what_may_succeed_later_is_not_abandoned(tmp_path: Path) -> None:
    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        raise SourceUnavailable("away")

    async def abandon(post: Post) -> None:
        raise AssertionError("it is tried again")

    retries = RetryStore(tmp_path / "retry.db")
    limits = ConsumerLimits(attempts=1, backoff=RetryPolicy(first=60))
    await run(
        PostConsumer(work, retries=retries, limits=limits, on_abandon=abandon), Given(line("f"))
    )
    assert len(retries) == 1
    retries.close()


async def test_our_own_mistakes_lose_nothing(tmp_path: Path) -> None:
    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        raise ZeroDivisionError

    retries = RetryStore(tmp_path / "retry.db")
    limits = ConsumerLimits(attempts=1, backoff=RetryPolicy(first=60))
    await run(PostConsumer(work, retries=retries, limits=limits), Given(line("f")))
    assert len(retries) == 1
    retries.close()


class FullStore(RetryStore):
    """On a disk that is full for a while."""

    def __init__(self, path: Path, calls: dict[str, int]) -> None:
        super().__init__(path)
        self._left = calls

    def _fail(self, call: str) -> None:
        if self._left.get(call, 0):
            self._left[call] -= 1
            raise sqlite3.OperationalError("database or disk is full")

    def add(self, pump_message: PumpMessage, now: float, due: float) -> None:
        self._fail("add")
        super().add(pump_message, now, due)

    def due(self, now: float, limit: int, longest: float) -> list[RetryEntry]:
        self._fail("due")
        return super().due(now, limit, longest)

    def postpone(self, entry: RetryEntry, due: float) -> None:
        self._fail("postpone")
        super().postpone(entry, due)

    def remove(self, entry: RetryEntry) -> None:
        self._fail("remove")
        super().remove(entry)


async def test_a_retry_store_on_a_full_disk_holds_posts_up_and_loses_none(tmp_path: Path) -> None:
    attempts = 0
    finished = asyncio.Event()

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        nonlocal attempts
        attempts += 1
        if attempts < 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        finished.set()
        return PostOutcome(201, "")

    retries = FullStore(tmp_path / "retry.db", {"due": 1, "add": 2, "postpone": 1, "remove": 1})
    consumer = PostConsumer(work, retries=retries, limits=LIMITS)
    await run(consumer, Given(line("f")), finished)
    assert consumer.counters.postponed == 1
    retries.close()


@pytest.mark.parametrize("jump", [3 * 86_400, -3 * 86_400], ids=["forth", "back"])
async def test_a_clock_that_jumps_by_days_neither_expires_nor_holds_up_a_post(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    ahead = 0
    clock = SimpleNamespace(time=lambda: time.time() + ahead, monotonic=time.monotonic)
    monkeypatch.setattr(consumer_module, "time", clock)
    monkeypatch.setattr(consumer_module, "RETRY_POLL_SECONDS", 0.01)
    attempts = 0
    finished = asyncio.Event()

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        nonlocal attempts, ahead
        attempts += 1
        if attempts == 4:
            ahead = jump
        if attempts < 8:
            raise SourceUnavailable("away")
        finished.set()
        return PostOutcome(201, "")

    retries = RetryStore(tmp_path / "retry.db")
    limits = replace(LIMITS, backoff=RetryPolicy(0.01, 0.02, 2 * 86_400.0))
    await run(PostConsumer(work, retries=retries, limits=limits), Given(line("f")), finished)
    assert len(retries) == 0
    retries.close()


async def test_a_post_that_no_store_takes_is_not_acknowledged_at_the_end(tmp_path: Path) -> None:
    tried = asyncio.Event()

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        tried.set()
        raise OSError(errno.EROFS, "Read-only file system")

    retries = FullStore(tmp_path / "retry.db", {"add": 1_000_000})
    consumer = PostConsumer(work, retries=retries, limits=LIMITS)
    given, stop = Given(line("f")), asyncio.Event()
    task = asyncio.create_task(consumer.run(cast(PumpSubscription, given), stop))
    await asyncio.wait_for(tried.wait(), 30)
    stop.set()
    await asyncio.wait_for(task, 30)
    assert not given.heard[0].acked.is_set()
    retries.close()


async def test_what_is_not_wanted_is_counted_by_reason_and_not_reported() -> None:
    told: list[int] = []

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        return PostOutcome(REJECTED, "no accept matches")

    async def tell(post: Post, outcome: PostOutcome, seconds: float) -> None:
        told.append(outcome.code)

    consumer = PostConsumer(work, retries=None, on_outcome=tell)
    await run(consumer, Given(line("f"), line("g")))
    assert consumer.counters.rejected == {"no accept matches": 2}
    assert told == []


async def test_what_is_given_up_after_its_time(tmp_path: Path) -> None:
    given_up = asyncio.Event()

    async def work(post: Post, pump_message: PumpMessage) -> PostOutcome:
        raise SourceUnavailable("away")

    async def tell(post: Post, outcome: PostOutcome, seconds: float) -> None:
        if len(retries) == 1:
            given_up.set()

    retries = RetryStore(tmp_path / "retry.db")
    limits = ConsumerLimits(attempts=1, backoff=RetryPolicy(first=0.01, total=0.0))
    await run(
        PostConsumer(work, retries=retries, limits=limits, on_outcome=tell),
        Given(line("f")),
        given_up,
    )
    assert len(retries) == 0
    retries.close()


def test_retries_outlive_a_restart(tmp_path: Path) -> None:
    pump_message = PumpMessage("v02.post.a", b"\xff\x00", {"sum": "d,0"})
    first = RetryStore(tmp_path / "retry.db")
    first.add(pump_message, now=1.0, due=5.0)
    first.close()
    second = RetryStore(tmp_path / "retry.db")
    assert second.due(4.0, 10, 600.0) == []
    (waiting,) = second.due(5.0, 10, 600.0)
    assert waiting.pump_message == pump_message
    second.postpone(waiting, 9.0)
    assert second.next_due() == 9.0
    second.remove(waiting)
    assert second.next_due() is None
    second.close()


@given(st.binary(max_size=50), st.text(max_size=10), st.dictionaries(st.text(), st.text()))
def test_a_letter_written_down_is_the_same(
    body: bytes, topic: str, headers: dict[str, str]
) -> None:
    pump_message = PumpMessage(topic, body, headers)
    assert message_from_json(message_to_json(pump_message)) == pump_message


class Channel:
    """Notes what is acknowledged on it."""

    def __init__(self) -> None:
        self.acked: list[tuple[int, bool]] = []

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self.acked.append((tag, multiple))


async def test_a_row_of_messages_is_acknowledged_in_one_word() -> None:
    channel = Channel()
    ack_batcher = AckBatcher(channel)
    for tag in range(1, 6):
        ack_batcher.add(tag)
    for tag in (2, 3, 1, 5):
        ack_batcher.ack(tag)
    await asyncio.sleep(0)
    assert channel.acked == [(3, True), (5, False)]
    ack_batcher.ack(4)
    await asyncio.sleep(0)
    assert channel.acked[2:] == [(4, True)]


@given(st.permutations(range(1, 13)), st.integers(1, 12))
def test_every_message_is_acknowledged_once_in_whatever_order_they_are_done(
    order: list[int], turn: int
) -> None:
    channel = Channel()

    async def settle() -> None:
        ack_batcher = AckBatcher(channel)
        for tag in sorted(order):
            ack_batcher.add(tag)
        for at in range(0, len(order), turn):
            for tag in order[at : at + turn]:
                ack_batcher.ack(tag)
            await asyncio.sleep(0)

    asyncio.run(settle())
    settled: set[int] = set()
    for tag, multiple in channel.acked:
        now = {each for each in order if each <= tag} - settled if multiple else {tag}
        assert now.isdisjoint(settled)
        assert tag in now
        settled |= now
    assert settled == set(order)


async def test_lanes_let_nobody_overtake() -> None:
    file_order = FileOrder()
    order: list[str] = []

    async def go(turn: Any, name: str) -> None:
        async with turn:
            order.append(name)

    first = file_order.acquire(["a", "b"])
    async with first:
        waiting = [
            asyncio.create_task(go(file_order.acquire(["b"]), "b")),
            asyncio.create_task(go(file_order.acquire(["a", "b"]), "ab")),
            asyncio.create_task(go(file_order.acquire(["c"]), "c")),
        ]
        await waiting[2]
        assert order == ["c"]
    await asyncio.gather(*waiting)
    assert order == ["c", "b", "ab"]
    assert file_order._last == {}


def test_both_names_of_a_move_keep_their_order_and_blocks_need_not() -> None:
    assert ordering_keys(post("/a", newname="b")) == ["a", "b"]
    assert ordering_keys(post("a", parts=Parts("i", 10, 2, 0, 1))) == ["a 1"]


def test_a_sum_always_goes_to_the_same_shard_as_sarracenia_computes_it() -> None:
    known = Checksum("d", "0f")
    assert shard(post(sum=known), 5) == sum(b"d,0f") % 5
    assert shard(post("/a/b", sum=known), 5, by_path=True) == sum(b"a/b") % 5  # sr3


def test_provenance_is_filled_in_and_a_distrusted_source_is_named_by_its_exchange() -> None:
    known = Provenance("me", "here", "there")
    filled = with_provenance(post(), known)
    assert (filled.source, filled.from_cluster, filled.to_clusters) == ("me", "here", "there")
    kept = with_provenance(post(source="you", from_cluster="far"), known)
    assert (kept.source, kept.from_cluster) == ("you", "far")
    liar = post(source="root", from_cluster="far")
    distrust = Provenance("me", "here", trusted=False, exchange="xs_you_suffix")
    told = with_provenance(liar, distrust)
    assert (told.source, told.from_cluster) == ("you", "here")
    told = with_provenance(liar, distrust, "xs_other")  # the exchange of this message
    assert told.source == "other"


def test_a_move_of_v03_has_the_removal_of_the_former_name() -> None:
    moved = post("a/new", oldname="a/old", sum=Checksum("s", "1"))
    v03, v02 = PumpMessage("v03.a", b"{}"), PumpMessage("v02.post.a", b"1 http://h/ a/new")
    removal = removal_of_move(moved, v03)
    assert removal is not None
    assert (removal.relpath, removal.newname) == ("a/old", "a/new")
    assert removal.event is FileEvent.DELETE
    assert removal_of_move(moved, v02) is None  # announced by itself
    assert removal_of_move(post("a/new"), v03) is None
    folder = removal_of_move(post("a/new", oldname="a/old", sum=directory_sum("new")), v03)
    assert folder is not None
    assert folder.event is FileEvent.RMDIR


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_fingerprints_count_from_when_they_were_last_seen(tmp_path: Path) -> None:
    clock = Clock()
    fingerprints = FingerprintStore(tmp_path / "seen.db", 10.0, clock)
    assert not fingerprints.is_known("a")
    await fingerprints.add("a")
    clock.now += 9
    assert fingerprints.is_known("a")
    clock.now += 9
    assert fingerprints.is_known("a")
    clock.now += 11
    assert not fingerprints.is_known("a")
    await fingerprints.expire_old()
    assert len(fingerprints) == 0
    await fingerprints.close()


async def test_fingerprints_outlive_a_crash(tmp_path: Path) -> None:
    clock = Clock()
    first = FingerprintStore(tmp_path / "seen.db", 10.0, clock)
    await asyncio.gather(*(first.add(f"key {number}") for number in range(100)))
    second = FingerprintStore(tmp_path / "seen.db", 10.0, clock)  # the first was never closed
    assert all(second.is_known(f"key {number}") for number in range(100))
    await second.close()


async def test_a_duplicate_waits_for_the_first_and_takes_its_place_if_that_fails(
    tmp_path: Path,
) -> None:
    duplicate_filter = DuplicateFilter(FingerprintStore(tmp_path / "seen.db", 10.0, Clock()))
    entered, fails = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with duplicate_filter.first(post()):
            entered.set()
            await fails.wait()
            raise SourceUnavailable("away")

    async def another() -> bool:
        async with duplicate_filter.first(post()) as is_first:
            return is_first

    failing = asyncio.create_task(first())
    await entered.wait()
    others = [asyncio.create_task(another()) for _ in range(2)]
    fails.set()
    with pytest.raises(SourceUnavailable):
        await failing
    assert sorted(await asyncio.gather(*others)) == [False, True]


@pytest.mark.parametrize(
    ("basis", "same"),
    [
        ("path", ["a/f s,1"]),
        ("name", ["a/f s,1", "b/f s,1"]),
        ("data", ["a/f s,1", "b/f s,1", "a/g s,1"]),
        ("path_only", ["a/f s,1", "a/f s,2"]),
        ("name_only", ["a/f s,1", "a/f s,2", "b/f s,1"]),
    ],
)
def test_what_duplicates_have_in_common(basis: Any, same: list[str]) -> None:
    def key(text: str) -> str:
        path, _, known = text.partition(" ")
        return fingerprint(post(path, sum=Checksum("s", known[2:])), basis)

    every = ("a/f s,1", "a/f s,2", "b/f s,1", "a/g s,1")
    assert [each for each in every if key(each) == key("a/f s,1")] == [
        each for each in every if each in same
    ]


class Received:
    """A subscription that receives what a test puts into it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    async def open(self) -> None: ...

    async def receive(self) -> Any:
        return [await self.queue.get()]

    async def queued(self) -> int | None:
        return self.queue.qsize()

    async def close(self) -> None: ...


async def test_several_subscriptions_are_read_as_one() -> None:
    first, second = Received(), Received()
    merged: Any = MergedSubscription([first, second])
    first.queue.put_nowait("a")
    assert await merged.receive() == ["a"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await merged.receive()
    second.queue.put_nowait("b")  # is received by what the cancelled call has started
    first.queue.put_nowait("c")
    assert await merged.queued() == 2
    found = [*await merged.receive()]
    while len(found) < 2:
        found += await merged.receive()
    assert sorted(found) == ["b", "c"]
    await merged.close()


@pytest.mark.parametrize("basis", ["path", "name", "data", "path_only", "name_only"])
def test_no_part_of_a_file_is_a_duplicate_of_another(basis: Any) -> None:
    known = Checksum("d", "same")
    kinds = {
        fingerprint(post(sum=known, parts=Parts("i", 10, 9, 0, number)), basis)
        for number in range(9)
    }
    assert len(kinds) == 9


def test_what_makes_announcements_equal() -> None:
    data = Checksum("d", "0")
    size = Parts.whole(5)
    here, there = post("a/f", sum=data, parts=size), post("b/f", sum=data, parts=size)
    assert fingerprint(here, "path") != fingerprint(there, "path")
    assert fingerprint(here, "name") == fingerprint(there, "name")
    other = post("b/g", sum=data, parts=size)
    assert fingerprint(here, "data") == fingerprint(other, "data")
    gone, gone_too = post("a/f", sum=removal_sum("f")), post("b/f", sum=removal_sum("f"))
    assert fingerprint(gone, "data") != fingerprint(gone_too, "data")
