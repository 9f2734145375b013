"""The broker's loop is asyncio's in everything but the short way to its own sockets."""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import signal
import socket
import sys

import pytest

from penstock.server import event_loop as poll_module
from penstock.server.event_loop import BrokerEventLoop, BrokerSelector, new_event_loop
from tests.server.loops import (
    Recorder,
    meet,
    on_broker_loop,
    open_recorder,
    passes_until,
    this_loop,
    visit,
)


@on_broker_loop
async def test_streams_of_asyncios_own_work() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\n")
    assert await reader.read() == b"hello\n"
    writer.close()
    await writer.wait_closed()
    server.close()


@on_broker_loop
async def test_subprocesses_signals_and_threads_work() -> None:
    told = asyncio.Event()
    this_loop().add_signal_handler(signal.SIGUSR1, told.set)
    program = f"import os, signal; os.kill({os.getpid()}, signal.SIGUSR1); print('done')"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    await told.wait()
    assert out == b"done\n"
    assert await asyncio.to_thread(lambda: 7) == 7
    this_loop().remove_signal_handler(signal.SIGUSR1)


@on_broker_loop
async def test_timers_ring_in_time_and_never_early() -> None:
    before = this_loop().time()
    await asyncio.sleep(0.0123)
    assert this_loop().time() - before >= 0.0123


@on_broker_loop
async def test_readers_and_writers_come_and_go() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    loop = this_loop()
    heard: list[str] = []
    loop.add_reader(here, heard.append, "read")
    loop.add_writer(here, heard.append, "write")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert set(heard) == {"write"}

    loop.remove_writer(here)
    heard.clear()
    there.send(b"x")
    await passes_until(lambda: heard)
    assert set(heard) == {"read"}

    assert loop.remove_reader(here)
    assert not loop.remove_reader(here)
    here.close()
    there.close()


@on_broker_loop
async def test_all_sockets_of_a_pass_are_served_before_it_is_said_to_be_over() -> None:
    door, recorders = await open_recorder()
    peers = [await visit(door) for _ in range(20)]
    await passes_until(lambda: len(recorders) == 20)
    seen: list[int] = []

    def over() -> None:
        seen.append(sum(len(recorder.received) for recorder in recorders))

    for peer in peers:
        peer.send(b"x")
    this_loop().poll.on_pass_end(over)
    await passes_until(lambda: seen and seen[-1] == 20)
    assert set(seen) == {0, 20}
    this_loop().poll.off_pass_end(over)
    for peer in peers:
        peer.close()
    door.close()


@on_broker_loop
async def test_what_was_closed_in_a_pass_is_not_served_in_it() -> None:
    first, a = await meet()
    second, b = await meet()

    def close_the_other(this: Recorder, other: Recorder) -> None:
        def received(data: bytes) -> None:
            this.received += data
            other.transport.abort()

        this.data_received = received  # type: ignore[method-assign]

    close_the_other(first, second)
    close_the_other(second, first)
    a.send(b"x")
    b.send(b"x")
    await passes_until(lambda: first.received or second.received)
    await asyncio.sleep(0.05)
    assert len(first.received) + len(second.received) == 1
    a.close()
    b.close()


def test_a_file_is_registered_once() -> None:
    poll = BrokerSelector()
    here, there = socket.socketpair()
    key = poll.register(here, select.POLLIN, "data")
    assert poll.get_key(here) == key
    assert poll.get_map()[here.fileno()] == key
    assert list(poll.get_map()) == [here]
    assert len(poll.get_map()) == 1
    with pytest.raises(KeyError):
        poll.register(here, select.POLLIN)
    assert poll.unregister(here) == key
    with pytest.raises(KeyError):
        poll.unregister(here)
    with pytest.raises(KeyError):
        poll.get_key(here)
    here.close()
    there.close()
    poll.close()


def test_a_file_that_was_closed_can_still_be_unregistered() -> None:
    poll = BrokerSelector()
    here, there = socket.socketpair()
    number = here.fileno()
    poll.register(number, select.POLLIN)
    here.close()
    assert poll.unregister(number).fd == number
    there.close()
    poll.close()


def test_a_system_without_epoll_has_asyncios_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll")
    loop = new_event_loop()
    assert not isinstance(loop, BrokerEventLoop)
    loop.close()


class _Noted:
    def __init__(self, served: list[int], number: int) -> None:
        self._served = served
        self._number = number

    def on_ready(self, events: int) -> None:
        self._served.append(self._number)


def test_who_a_pass_has_no_time_for_comes_first_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll_module, "PASS_SECONDS", -1.0)
    poll = BrokerSelector()
    pairs = [socket.socketpair() for _ in range(3)]
    served: list[int] = []
    for number, (here, there) in enumerate(pairs):
        poll.serve(here.fileno(), select.EPOLLIN, _Noted(served, number))
        there.send(b"x")
    asyncios = socket.socketpair()
    poll.register(asyncios[0], selectors.EVENT_READ)
    asyncios[1].send(b"x")
    for _ in range(6):
        assert [key.fileobj for key, _ in poll.select(None)] == [asyncios[0]]
    assert sorted(served) == [0, 0, 1, 1, 2, 2]
    poll.close()
    for one in (*pairs, asyncios):
        for end in one:
            end.close()
