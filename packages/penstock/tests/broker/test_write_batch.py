"""Turns: logs before sockets, and each socket once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from penstock.broker.write_batch import (
    MAX_BATCH_LOGS,
    MAX_BATCH_SECONDS,
    MAX_READS,
    PAUSE_SECONDS,
    PAUSES_SECONDS,
    WriteBatch,
)
from tests.doubles import Stand


class Socket:
    def __init__(self, said: list[str], name: str = "flush") -> None:
        self._said = said
        self._name = name

    def flush(self) -> None:
        self._said.append(self._name)


class Log:
    """Something the committer writes."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def write(self) -> None:
        self._said.append("write")

    def begin_sync(self) -> list[int]:
        return []

    def end_sync(self, error: OSError | None) -> None:
        self._said.append("synced")


async def test_logs_are_written_before_sockets_are_flushed(stand: Stand) -> None:
    said: list[str] = []
    write_batch = stand.kernel.write_batch
    write_batch.to_flush.append(Socket(said))
    stand.kernel.committer.touch(Log(said))
    write_batch.flush()
    assert said == ["write", "flush"]


async def test_a_socket_is_flushed_once_a_turn(stand: Stand) -> None:
    said: list[str] = []
    write_batch = stand.kernel.write_batch
    write_batch.to_flush.append(Socket(said))
    write_batch.flush()
    write_batch.flush()
    assert said == ["flush"]


async def test_what_a_flush_sets_in_motion_belongs_to_the_turn(stand: Stand) -> None:
    said: list[str] = []
    write_batch = stand.kernel.write_batch

    class Chatty(Socket):
        def flush(self) -> None:
            super().flush()
            write_batch.to_flush.append(Socket(said, "the other"))

    write_batch.to_flush.append(Chatty(said))
    write_batch.flush()
    assert said == ["flush", "the other"]


async def test_a_timer_is_a_turn_of_its_own(stand: Stand) -> None:
    said: list[str] = []
    write_batch = stand.kernel.write_batch

    def ring() -> None:
        said.append("ring")
        write_batch.to_flush.append(Socket(said))

    write_batch.call_at(stand.clock.time() + 5, ring)
    stand.clock.advance(4)
    assert said == []
    stand.clock.advance(2)
    assert said == ["ring", "flush"]


async def test_a_turn_ends_even_when_its_work_fails(stand: Stand) -> None:
    loop = asyncio.get_running_loop()
    said: list[str] = []
    complained = asyncio.Event()
    loop.set_exception_handler(lambda *_: complained.set())
    write_batch = WriteBatch(loop, stand.kernel.committer)

    def fail() -> None:
        write_batch.to_flush.append(Socket(said))
        raise RuntimeError("half way")

    write_batch.call_soon(fail)
    await complained.wait()
    loop.set_exception_handler(None)
    assert said == ["flush"]


def test_each_read_is_a_turn_of_its_own_where_nobody_says_when_a_pass_is_over(stand: Stand) -> None:
    said: list[str] = []
    write_batch = stand.kernel.write_batch
    write_batch.to_flush.append(Socket(said))
    write_batch.end_read()
    assert said == ["flush"]


def test_reads_of_one_pass_are_gathered_up_to_a_number(stand: Stand) -> None:
    said: list[str] = []
    write_batch = stand.kernel.write_batch
    write_batch.spans_reads = True
    write_batch.to_flush.append(Socket(said))
    for _ in range(MAX_READS - 1):
        write_batch.end_read()
    assert said == []
    write_batch.end_read()
    assert said == ["flush"]


def test_a_turn_ends_with_the_pass(stand: Stand) -> None:
    said: list[str] = []
    write_batch = stand.kernel.write_batch
    write_batch.spans_reads = True
    write_batch.to_flush.append(Socket(said))
    write_batch.end_read()
    write_batch.end_pass()
    assert said == ["flush"]


class Reader:
    """The input of a client."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def defer_rest(self) -> None:
        self.told.append("give way")

    def hold(self) -> None:
        self.told.append("hold")

    def hold_output(self) -> Callable[[], None]:
        raise AssertionError("nothing is replicated")

    def resume(self) -> None:
        self.told.append("resume")


async def test_a_client_gives_way_when_the_turn_has_used_its_time(stand: Stand) -> None:
    write_batch, reader = stand.kernel.write_batch, Reader()
    write_batch.reader = reader
    write_batch.check_time()
    stand.clock.advance(MAX_BATCH_SECONDS)
    write_batch.check_time()
    assert reader.told == []
    stand.clock.advance(0.001)
    write_batch.check_time()
    write_batch.check_time()
    assert reader.told == ["give way"]


async def test_the_next_turn_has_time_of_its_own(stand: Stand) -> None:
    write_batch, reader = stand.kernel.write_batch, Reader()
    write_batch.check_time()
    stand.clock.advance(1)
    write_batch.flush()
    write_batch.reader = reader
    write_batch.check_time()
    assert reader.told == []


async def test_many_logs_to_write_end_a_turn_too(stand: Stand) -> None:
    write_batch = stand.kernel.write_batch
    assert not write_batch.is_over()
    for _ in range(MAX_BATCH_LOGS + 1):
        stand.kernel.committer.touch(Log([]))
    assert write_batch.is_over()


async def test_long_work_is_done_a_piece_in_each_pass_of_the_loop(stand: Stand) -> None:
    write_batch = stand.kernel.write_batch
    done: list[str] = []

    def other() -> None:
        done.append("other")

    for name in ("one", "two", "three"):
        write_batch.defer(partial(done.append, name))
    for _ in range(3):
        asyncio.get_running_loop().call_soon(other)
        await asyncio.sleep(0)
    assert done == ["one", "other", "two", "other", "three", "other"]


async def test_a_piece_of_work_is_a_turn(stand: Stand) -> None:
    said: list[str] = []
    write_batch = stand.kernel.write_batch
    write_batch.defer(lambda: write_batch.to_flush.append(Socket(said)))
    await asyncio.sleep(0)
    assert said == ["flush"]


class Passes:
    """A loop of which the test runs the passes: what is due now, and what is put off."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, _: float, callback: Callable[[], None]) -> None:
        self.late.append(callback)

    def run(self) -> None:
        due, self.soon = self.soon, []
        for callback in due:
            callback()

    def wait(self) -> None:
        self.now += PAUSE_SECONDS
        self.soon, self.late = self.late, []
        self.run()


def turn_with_pieces(stand: Stand, passes: Passes, pieces: int) -> tuple[WriteBatch, list[str]]:
    write_batch = WriteBatch(cast(asyncio.AbstractEventLoop, passes), stand.kernel.committer)
    said: list[str] = []
    for _ in range(pieces):
        write_batch.defer(partial(said.append, "piece"))
    return write_batch, said


def ask(write_batch: WriteBatch) -> None:
    write_batch.reader = Reader()
    write_batch.end_read()


def test_pieces_follow_each_other_while_nobody_asks_for_anything(stand: Stand) -> None:
    passes = Passes()
    _, said = turn_with_pieces(stand, passes, 2)

    passes.run()
    assert said == ["piece"]
    passes.run()
    assert said == ["piece", "piece"]
    assert not passes.late


@pytest.mark.parametrize("come", [ask, WriteBatch.expect], ids=["ask", "connect"])
def test_the_next_piece_waits_while_others_are_being_served(
    stand: Stand, come: Callable[[WriteBatch], None]
) -> None:
    passes = Passes()
    write_batch, said = turn_with_pieces(stand, passes, 1)

    come(write_batch)
    passes.run()
    assert said == []
    ask(write_batch)
    passes.wait()
    assert said == []
    passes.wait()  # nobody came in the meantime
    assert said == ["piece"]


def test_a_piece_does_not_wait_forever(stand: Stand) -> None:
    passes = Passes()
    write_batch, said = turn_with_pieces(stand, passes, 1)

    ask(write_batch)
    passes.run()
    passes.now += PAUSES_SECONDS
    ask(write_batch)
    passes.wait()
    assert said == ["piece"]


def test_whoever_had_to_give_way_is_not_waited_for(stand: Stand) -> None:
    passes = Passes()
    write_batch, said = turn_with_pieces(stand, passes, 1)

    write_batch.reader = None  # as `spend` leaves it
    write_batch.end_read()
    passes.run()
    assert said == ["piece"]


def test_work_that_goes_on_later_is_one_piece_a_pass(stand: Stand) -> None:
    passes = Passes()
    write_batch, said = turn_with_pieces(stand, passes, 0)

    def go_on() -> None:
        said.append("piece")
        write_batch.defer(go_on)

    write_batch.defer(go_on)
    for expected in range(1, 4):
        passes.run()
        assert len(said) == expected
        assert len(passes.soon) == 1
