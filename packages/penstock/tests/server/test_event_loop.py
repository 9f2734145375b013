"""The broker's loop is asyncio's in everything but the short way to its own sockets."""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast

import pytest

from penstock.server import event_loop as poll_module
from penstock.server.event_loop import (
    READ_BYTES,
    BrokerEventLoop,
    BrokerSelector,
    SocketTransport,
    new_event_loop,
)
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
    def __init__(
        self,
        served: list[Any],
        number: int,
        is_bulky: bool = False,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self.is_bulky = is_bulky
        self._served = served
        self._number = number
        self._then = then

    def on_ready(self, events: int) -> None:
        self._served.append(self._number)
        self._then()


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


@contextmanager
def _pairs(count: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(count)]
        for here, there in pairs:
            stack.enter_context(here)
            stack.enter_context(there)
        yield pairs


def _send_to(pair: tuple[socket.socket, socket.socket]) -> Callable[[], object]:
    return lambda: pair[1].send(b"x")


def _read_from(here: socket.socket) -> Callable[[], object]:
    return lambda: here.recv(1)


def test_between_two_bulky_sockets_others_are_served_and_their_output_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll_module, "BULKY_SECONDS", 60.0)
    poll = BrokerSelector()
    served: list[Any] = []
    with _pairs(4) as pairs:
        first, second, small, late = (here for here, _ in pairs)
        poll.serve(first.fileno(), select.EPOLLIN, _Noted(served, 1, True, _send_to(pairs[3])))
        poll.serve(second.fileno(), select.EPOLLIN, _Noted(served, 2, True))
        poll.serve(small.fileno(), select.EPOLLIN, _Noted(served, 3, False, _read_from(small)))
        poll.serve(late.fileno(), select.EPOLLIN, _Noted(served, 4, False, _read_from(late)))
        poll.on_pass_end(lambda: served.append("sent"))
        for _, there in pairs[:3]:
            there.send(b"x")

        poll.select(0)

        assert served == ["sent", 3, "sent", 1, 4, "sent", 2, "sent"]
        poll.close()


def test_what_is_ready_of_asyncio_does_not_wait_for_all_bulky_sockets() -> None:
    poll = BrokerSelector()
    served: list[int] = []
    with _pairs(3) as pairs:
        first, second, asyncios = (here for here, _ in pairs)
        poll.serve(first.fileno(), select.EPOLLIN, _Noted(served, 1, True, _send_to(pairs[2])))
        poll.serve(second.fileno(), select.EPOLLIN, _Noted(served, 2, True))
        poll.register(asyncios, selectors.EVENT_READ)
        for _, there in pairs[:2]:
            there.send(b"x")

        assert [key.fileobj for key, _ in poll.select(None)] == [asyncios]
        assert served == [1]
        poll.select(None)
        assert served == [1, 2]
        poll.close()


def test_bulky_sockets_are_served_in_turn_however_busy_the_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll_module, "PASS_SECONDS", -1.0)
    monkeypatch.setattr(poll_module, "BULKY_SECONDS", -1.0)
    poll = BrokerSelector()
    served: list[int] = []
    with _pairs(4) as pairs:
        for number, (here, there) in enumerate(pairs):
            poll.serve(here.fileno(), select.EPOLLIN, _Noted(served, number, number < 2))
            there.send(b"x")

        for _ in range(6):
            poll.select(None)

        assert served.count(0) == served.count(1) == 3
        poll.close()


@on_broker_loop
async def test_a_socket_is_bulky_while_its_reads_are_large() -> None:
    recorder, peer = await meet()
    transport = cast(SocketTransport, recorder.transport)
    reads: list[tuple[int, bool]] = []

    def received(data: bytes) -> None:
        reads.append((len(data), transport.is_bulky))
        recorder.changed.set()

    recorder.data_received = received  # type: ignore[method-assign]
    # One read takes all of what is sent, which the socket has room for.
    transport.max_size = 2 * READ_BYTES
    here = cast(socket.socket, transport.get_extra_info("socket"))
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * READ_BYTES)
    transport.pause_reading()
    await this_loop().sock_sendall(peer, bytes(READ_BYTES))

    def has_arrived() -> bool:
        with suppress(BlockingIOError):
            return len(here.recv(READ_BYTES, socket.MSG_PEEK)) == READ_BYTES
        return False

    await passes_until(has_arrived)
    transport.resume_reading()
    await recorder.until(lambda: len(reads) == 1)
    peer.send(b"x")
    await recorder.until(lambda: len(reads) == 2)
    assert reads == [(READ_BYTES, True), (1, False)]
    peer.close()
