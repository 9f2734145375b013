"""The loop of those that hear posts: order, retries, what is told; and what winnowing remembers."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pump.errors import OutsideDirectory, SourceUnavailable
from penstock.pump.flow.announcing import shard
from penstock.pump.flow.consumer import Consumer, Limits, names
from penstock.pump.flow.hearing import Hearing
from penstock.pump.flow.lanes import Lanes
from penstock.pump.flow.letter import Letter, from_json, to_json
from penstock.pump.flow.retries import Backoff, Retries
from penstock.pump.flow.settling import Settling
from penstock.pump.headers import Provenance, with_provenance
from penstock.pump.outcome import REJECTED, Outcome
from penstock.pump.posts import Parts, Post, Sum
from penstock.pump.posts.sums import removal_sum
from penstock.pump.winnowing.fingerprints import Fingerprints
from penstock.pump.winnowing.suppression import Suppression, fingerprint


def post(path: str = "f", **facts: Any) -> Post:
    return Post(moment=0, base_url="http://h/", relpath=path, **facts)


class Acked:
    """Keeps `Heard`."""

    def __init__(self, letter: Letter) -> None:
        self.letter = letter
        self.acked = asyncio.Event()

    async def ack(self) -> None:
        self.acked.set()


class Given:
    """Hears the messages it was made with, and notes which were acknowledged."""

    def __init__(self, *bodies: str) -> None:
        self.heard = [Acked(Letter("v02.post", body.encode())) for body in bodies]
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


LIMITS = Limits(attempts=2, pause=0.0, backoff=Backoff(first=0.01, longest=0.02))


async def run(consumer: Consumer, given: Given, until: asyncio.Event | None = None) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(consumer.run(cast(Hearing, given), stop))
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

    async def work(post: Post, letter: Letter) -> Outcome:
        number = len(done)
        if post.relpath == "a" and "a" not in done:
            await slow.wait()
        done.append(post.relpath)
        if post.relpath == "b":
            slow.set()
        return Outcome(201, str(number))

    given = Given(line("a"), line("a"), line("b"))
    await run(Consumer(work, retries=None), given)
    assert done == ["b", "a", "a"]


async def test_what_fails_in_passing_is_tried_at_once_and_then_written_down(
    tmp_path: Path,
) -> None:
    attempts = 0
    finished = asyncio.Event()
    told: list[int] = []

    async def work(post: Post, letter: Letter) -> Outcome:
        nonlocal attempts
        attempts += 1
        if attempts < 5:
            raise SourceUnavailable("away")
        finished.set()
        return Outcome(201, "")

    async def tell(post: Post, outcome: Outcome, seconds: float) -> None:
        told.append(outcome.code)

    retries = Retries(tmp_path / "retry.db")
    consumer = Consumer(work, retries=retries, limits=LIMITS, tell=tell)
    await run(consumer, Given(line("f")), finished)
    assert attempts == 5
    assert told == [503, 503, 503, 201]
    assert consumer.tally.postponed == 1
    assert len(retries) == 0
    retries.close()


async def test_retries_have_their_turn_however_little_may_be_done_at_a_time(
    tmp_path: Path,
) -> None:
    finished = asyncio.Event()
    attempts = 0

    async def work(post: Post, letter: Letter) -> Outcome:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise SourceUnavailable("away")
        assert letter.again
        finished.set()
        return Outcome(201, "")

    retries = Retries(tmp_path / "retry.db")
    limits = Limits(in_hand=1, attempts=1, backoff=Backoff(first=0.01))
    await run(Consumer(work, retries=retries, limits=limits), Given(line("f")), finished)
    retries.close()


async def test_what_cannot_succeed_is_told_and_done_with(tmp_path: Path) -> None:
    async def work(post: Post, letter: Letter) -> Outcome:
        raise OutsideDirectory("..")

    retries = Retries(tmp_path / "retry.db")
    consumer = Consumer(work, retries=retries, limits=LIMITS)
    await run(consumer, Given(line("f"), "no post"))
    assert consumer.tally.codes == {417: 2}
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

    async def work(post: Post, letter: Letter) -> Outcome:
        attempts.append(post.relpath)
        raise error

    retries = Retries(tmp_path / "retry.db")
    consumer = Consumer(work, retries=retries, limits=LIMITS)
    await run(consumer, Given(line("f")))
    assert (attempts, consumer.tally.codes, len(retries)) == (["f"], {417: 1}, 0)
    retries.close()


@pytest.mark.parametrize("retrying", [True, False])
@pytest.mark.parametrize("error", [SourceUnavailable("away"), OutsideDirectory("..")], ids=repr)
async def test_what_failed_for_good_is_abandoned_once(
    error: Exception, retrying: bool, tmp_path: Path
) -> None:
    abandoned: list[str] = []
    done = asyncio.Event()

    async def work(post: Post, letter: Letter) -> Outcome:
        if post.relpath == "good":
            return Outcome(201, "Downloaded")
        assert abandoned == []
        raise error

    async def abandon(post: Post) -> None:
        abandoned.append(post.relpath)
        done.set()

    retries = Retries(tmp_path / "retry.db") if retrying else None
    limits = Limits(attempts=2, pause=0.0, backoff=Backoff(first=0.01, lifetime=0.0))
    consumer = Consumer(work, retries=retries, limits=limits, abandon=abandon)
    await run(consumer, Given(line("good"), line("f")), done)
    assert abandoned == ["f"]
    if retries is not None:
        retries.close()


async def test_what_may_succeed_later_is_not_abandoned(tmp_path: Path) -> None:
    async def work(post: Post, letter: Letter) -> Outcome:
        raise SourceUnavailable("away")

    async def abandon(post: Post) -> None:
        raise AssertionError("it is tried again")

    retries = Retries(tmp_path / "retry.db")
    limits = Limits(attempts=1, backoff=Backoff(first=60))
    await run(Consumer(work, retries=retries, limits=limits, abandon=abandon), Given(line("f")))
    assert len(retries) == 1
    retries.close()


async def test_our_own_mistakes_lose_nothing(tmp_path: Path) -> None:
    async def work(post: Post, letter: Letter) -> Outcome:
        raise ZeroDivisionError

    retries = Retries(tmp_path / "retry.db")
    limits = Limits(attempts=1, backoff=Backoff(first=60))
    await run(Consumer(work, retries=retries, limits=limits), Given(line("f")))
    assert len(retries) == 1
    retries.close()


async def test_what_is_not_wanted_is_counted_by_reason_and_not_reported() -> None:
    told: list[int] = []

    async def work(post: Post, letter: Letter) -> Outcome:
        return Outcome(REJECTED, "no accept matches")

    async def tell(post: Post, outcome: Outcome, seconds: float) -> None:
        told.append(outcome.code)

    consumer = Consumer(work, retries=None, tell=tell)
    await run(consumer, Given(line("f"), line("g")))
    assert consumer.tally.rejected == {"no accept matches": 2}
    assert told == []


async def test_what_is_given_up_after_its_time(tmp_path: Path) -> None:
    given_up = asyncio.Event()

    async def work(post: Post, letter: Letter) -> Outcome:
        raise SourceUnavailable("away")

    async def tell(post: Post, outcome: Outcome, seconds: float) -> None:
        if len(retries) == 1:
            given_up.set()

    retries = Retries(tmp_path / "retry.db")
    limits = Limits(attempts=1, backoff=Backoff(first=0.01, lifetime=0.0))
    await run(Consumer(work, retries=retries, limits=limits, tell=tell), Given(line("f")), given_up)
    assert len(retries) == 0
    retries.close()


def test_retries_outlive_a_restart(tmp_path: Path) -> None:
    letter = Letter("v02.post.a", b"\xff\x00", {"sum": "d,0"})
    first = Retries(tmp_path / "retry.db")
    first.add(letter, now=1.0, due=5.0)
    first.close()
    second = Retries(tmp_path / "retry.db")
    assert second.due(4.0, 10) == []
    (waiting,) = second.due(5.0, 10)
    assert waiting.letter == letter
    second.postpone(waiting, 9.0)
    assert second.next_due() == 9.0
    second.done(waiting)
    assert second.next_due() is None
    second.close()


@given(st.binary(max_size=50), st.text(max_size=10), st.dictionaries(st.text(), st.text()))
def test_a_letter_written_down_is_the_same(
    body: bytes, topic: str, headers: dict[str, str]
) -> None:
    letter = Letter(topic, body, headers)
    assert from_json(to_json(letter)) == letter


class Channel:
    """Notes what is acknowledged on it."""

    def __init__(self) -> None:
        self.acked: list[tuple[int, bool]] = []

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self.acked.append((tag, multiple))


async def test_a_row_of_messages_is_acknowledged_in_one_word() -> None:
    channel = Channel()
    settling = Settling(channel)
    for tag in range(1, 6):
        settling.took(tag)
    for tag in (2, 3, 1, 5):
        settling.done(tag)
    await asyncio.sleep(0)
    assert channel.acked == [(3, True), (5, False)]
    settling.done(4)
    await asyncio.sleep(0)
    assert channel.acked[2:] == [(4, True)]


@given(st.permutations(range(1, 13)), st.integers(1, 12))
def test_every_message_is_acknowledged_once_in_whatever_order_they_are_done(
    order: list[int], turn: int
) -> None:
    channel = Channel()

    async def settle() -> None:
        settling = Settling(channel)
        for tag in sorted(order):
            settling.took(tag)
        for at in range(0, len(order), turn):
            for tag in order[at : at + turn]:
                settling.done(tag)
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
    lanes = Lanes()
    order: list[str] = []

    async def go(turn: Any, name: str) -> None:
        async with turn:
            order.append(name)

    first = lanes.enter(["a", "b"])
    async with first:
        waiting = [
            asyncio.create_task(go(lanes.enter(["b"]), "b")),
            asyncio.create_task(go(lanes.enter(["a", "b"]), "ab")),
            asyncio.create_task(go(lanes.enter(["c"]), "c")),
        ]
        await waiting[2]
        assert order == ["c"]
    await asyncio.gather(*waiting)
    assert order == ["c", "b", "ab"]
    assert lanes._last == {}


def test_both_names_of_a_move_keep_their_order_and_blocks_need_not() -> None:
    assert names(post("/a", newname="b")) == ["a", "b"]
    assert names(post("a", parts=Parts("i", 10, 2, 0, 1))) == ["a 1"]


def test_a_sum_always_goes_to_the_same_shard_as_sarracenia_computes_it() -> None:
    known = Sum("d", "0f")
    assert shard(post(sum=known), 5) == sum(b"d,0f") % 5


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


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_fingerprints_count_from_when_they_were_last_seen(tmp_path: Path) -> None:
    clock = Clock()
    fingerprints = Fingerprints(tmp_path / "seen.db", 10.0, clock)
    assert not fingerprints.known("a")
    await fingerprints.remember("a")
    clock.now += 9
    assert fingerprints.known("a")
    clock.now += 9
    assert fingerprints.known("a")
    clock.now += 11
    assert not fingerprints.known("a")
    await fingerprints.forget_old()
    assert len(fingerprints) == 0
    await fingerprints.close()


async def test_fingerprints_outlive_a_crash(tmp_path: Path) -> None:
    clock = Clock()
    first = Fingerprints(tmp_path / "seen.db", 10.0, clock)
    await asyncio.gather(*(first.remember(f"key {number}") for number in range(100)))
    second = Fingerprints(tmp_path / "seen.db", 10.0, clock)  # the first was never closed
    assert all(second.known(f"key {number}") for number in range(100))
    await second.close()


async def test_a_duplicate_waits_for_the_first_and_takes_its_place_if_that_fails(
    tmp_path: Path,
) -> None:
    suppression = Suppression(Fingerprints(tmp_path / "seen.db", 10.0, Clock()))
    entered, fails = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with suppression.first(post()):
            entered.set()
            await fails.wait()
            raise SourceUnavailable("away")

    async def another() -> bool:
        async with suppression.first(post()) as is_first:
            return is_first

    failing = asyncio.create_task(first())
    await entered.wait()
    others = [asyncio.create_task(another()) for _ in range(2)]
    fails.set()
    with pytest.raises(SourceUnavailable):
        await failing
    assert sorted(await asyncio.gather(*others)) == [False, True]


@pytest.mark.parametrize("basis", ["path", "name", "data"])
def test_no_part_of_a_file_is_a_duplicate_of_another(basis: Any) -> None:
    known = Sum("d", "same")
    kinds = {
        fingerprint(post(sum=known, parts=Parts("i", 10, 9, 0, number)), basis)
        for number in range(9)
    }
    assert len(kinds) == 9


def test_what_makes_announcements_equal() -> None:
    data = Sum("d", "0")
    size = Parts.whole(5)
    here, there = post("a/f", sum=data, parts=size), post("b/f", sum=data, parts=size)
    assert fingerprint(here, "path") != fingerprint(there, "path")
    assert fingerprint(here, "name") == fingerprint(there, "name")
    other = post("b/g", sum=data, parts=size)
    assert fingerprint(here, "data") == fingerprint(other, "data")
    gone, gone_too = post("a/f", sum=removal_sum("f")), post("b/f", sum=removal_sum("f"))
    assert fingerprint(gone, "data") != fingerprint(gone_too, "data")
