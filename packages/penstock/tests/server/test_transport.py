"""A connection on the broker's loop keeps asyncio's contract of transports and protocols."""

from __future__ import annotations

import asyncio
import socket
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.loops import Recorder, meet, on_broker_loop, this_loop

MUCH = 8 * 1024 * 1024


def reset(peer: socket.socket) -> None:
    """Close without a goodbye."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


async def read_exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = await this_loop().sock_recv(peer, 256 * 1024)
        assert piece, f"ended after {len(data)} of {size} bytes"
        data += piece
    return bytes(data)


@on_broker_loop
async def test_what_the_peer_sends_is_received() -> None:
    recorder, peer = await meet()
    peer.send(b"hello")
    await recorder.until(lambda: recorder.received == b"hello")
    peer.close()


@on_broker_loop
async def test_what_is_written_is_sent_at_once() -> None:
    recorder, peer = await meet()
    recorder.transport.write(b"hello")
    recorder.transport.writelines([b", ", b"peer"])
    assert peer.recv(100) == b"hello, peer"
    assert recorder.transport.get_write_buffer_size() == 0
    peer.close()


@on_broker_loop
async def test_what_the_socket_does_not_take_waits_and_comes_in_order() -> None:
    recorder, peer = await meet()
    pieces = [bytes([number]) * (MUCH // 16) for number in range(16)]

    for piece in pieces:
        recorder.transport.write(piece)

    assert recorder.said == ["made", "pause"]
    assert recorder.transport.get_write_buffer_size() > 0
    assert await read_exactly(peer, MUCH) == b"".join(pieces)
    await recorder.until(lambda: "resume" in recorder.said)
    assert recorder.transport.get_write_buffer_size() == 0
    peer.close()


@settings(max_examples=20)
@given(st.lists(st.integers(1, 400_000), min_size=1, max_size=30))
def test_bytes_arrive_as_written_whatever_the_pieces(sizes: list[int]) -> None:
    @on_broker_loop
    async def exchange() -> None:
        recorder, peer = await meet()
        sent = bytearray()
        for number, size in enumerate(sizes):
            piece = bytes([number % 251]) * size
            sent += piece
            recorder.transport.write(piece)
        recorder.transport.close()
        assert await read_exactly(peer, len(sent)) == sent
        assert await this_loop().sock_recv(peer, 1) == b""
        peer.close()

    exchange()


@on_broker_loop
async def test_a_change_of_a_buffer_after_the_write_is_not_sent() -> None:
    recorder, peer = await meet()
    recorder.transport.write(b"-" * MUCH)
    buffer = bytearray(b"first")
    recorder.transport.write(bytes(buffer))
    buffer[:] = b"other"
    assert (await read_exactly(peer, MUCH + 5))[-5:] == b"first"
    peer.close()


@on_broker_loop
async def test_close_sends_what_waits_and_then_ends() -> None:
    recorder, peer = await meet()
    recorder.transport.write(b"x" * MUCH)
    recorder.transport.close()
    recorder.transport.write(b"too late")

    assert recorder.transport.is_closing()
    assert await read_exactly(peer, MUCH) == b"x" * MUCH
    assert await this_loop().sock_recv(peer, 1) == b""
    await recorder.until_lost()
    assert recorder.error is None
    peer.close()


@on_broker_loop
async def test_abort_drops_what_waits() -> None:
    recorder, peer = await meet()
    recorder.transport.write(b"x" * MUCH)
    recorder.transport.abort()

    assert recorder.transport.get_write_buffer_size() == 0
    assert "lost" not in recorder.said, "whoever aborts may be in the middle of something"
    await recorder.until_lost()
    peer.close()


@on_broker_loop
async def test_a_connection_ends_once() -> None:
    recorder, peer = await meet()
    recorder.transport.abort()
    recorder.transport.close()
    recorder.transport.abort()
    await recorder.until_lost()
    await asyncio.sleep(0)
    assert recorder.said == ["made", "lost"]
    peer.close()


@on_broker_loop
async def test_the_peers_end_ends_the_connection() -> None:
    recorder, peer = await meet()
    peer.send(b"bye")
    peer.close()
    await recorder.until_lost()
    assert recorder.received == b"bye"
    assert recorder.said == ["made", "eof", "lost"]


@on_broker_loop
async def test_a_terminal_may_go_on_writing_after_the_peers_end() -> None:
    class Patient(Recorder):
        def eof_received(self) -> bool:
            super().eof_received()
            return True

    recorder, peer = await meet(Patient)
    peer.shutdown(socket.SHUT_WR)
    await recorder.until(lambda: "eof" in recorder.said)
    recorder.transport.write(b"still here")
    assert await read_exactly(peer, 10) == b"still here"
    recorder.transport.write_eof()
    assert await this_loop().sock_recv(peer, 1) == b""
    recorder.transport.close()
    await recorder.until_lost()
    peer.close()


@on_broker_loop
async def test_the_writing_half_is_shut_when_all_is_written() -> None:
    recorder, peer = await meet()
    recorder.transport.write(b"x" * MUCH)
    recorder.transport.write_eof()
    assert await read_exactly(peer, MUCH) == b"x" * MUCH
    assert await this_loop().sock_recv(peer, 1) == b""
    peer.send(b"I still talk")
    await recorder.until(lambda: recorder.received == b"I still talk")
    peer.close()


@on_broker_loop
async def test_a_reset_is_told_as_the_error_it_is() -> None:
    recorder, peer = await meet()
    reset(peer)
    await recorder.until_lost()
    assert isinstance(recorder.error, ConnectionResetError)


@on_broker_loop
async def test_a_reset_is_met_while_output_waits_and_nothing_is_read() -> None:
    recorder, peer = await meet()
    recorder.transport.pause_reading()
    recorder.transport.write(b"x" * MUCH)
    reset(peer)
    await recorder.until_lost()
    assert isinstance(recorder.error, OSError)


@on_broker_loop
async def test_nothing_is_read_while_reading_is_paused() -> None:
    recorder, peer = await meet()
    recorder.transport.pause_reading()
    assert not recorder.transport.is_reading()
    peer.send(b"patience")
    for _ in range(10):
        await asyncio.sleep(0)
    assert recorder.received == b""

    recorder.transport.resume_reading()
    await recorder.until(lambda: recorder.received == b"patience")
    peer.close()


@on_broker_loop
async def test_a_reset_does_not_keep_the_loop_busy_while_nobody_reads() -> None:
    recorder, peer = await meet()
    recorder.transport.pause_reading()
    passes: list[None] = []
    reset(peer)
    this_loop().poll.on_pass_end(lambda: passes.append(None))
    await asyncio.sleep(0.2)
    assert len(passes) < 20
    recorder.transport.resume_reading()
    await recorder.until_lost()


@on_broker_loop
async def test_the_terminal_says_how_much_is_read_at_a_time() -> None:
    class Small(Recorder):
        largest = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            transport.max_size = 10  # type: ignore[attr-defined]

        def data_received(self, data: bytes) -> None:
            self.largest = max(self.largest, len(data))
            super().data_received(data)

    recorder, peer = await meet(Small)
    peer.send(b"x" * 95)
    await recorder.until(lambda: len(recorder.received) == 95)
    assert isinstance(recorder, Small)
    assert recorder.largest == 10
    peer.close()


@on_broker_loop
async def test_a_terminal_that_fails_is_reported_and_its_connection_ended() -> None:
    class Clumsy(Recorder):
        def data_received(self, data: bytes) -> None:
            raise RuntimeError("I cannot read")

    reported: list[dict[str, object]] = []
    this_loop().set_exception_handler(lambda _, context: reported.append(context))
    recorder, peer = await meet(Clumsy)
    peer.send(b"hello")
    await recorder.until_lost()
    assert [str(each["exception"]) for each in reported] == ["I cannot read"]
    peer.close()


@on_broker_loop
async def test_a_terminal_that_is_paused_may_abort_there_and_then() -> None:
    class Hasty(Recorder):
        def pause_writing(self) -> None:
            super().pause_writing()
            self.transport.abort()

    recorder, peer = await meet(Hasty)
    recorder.transport.write(b"x" * MUCH)
    recorder.transport.write(b"more")
    await recorder.until_lost()
    assert recorder.said == ["made", "pause", "lost"]
    peer.close()


@on_broker_loop
async def test_another_terminal_may_take_over() -> None:
    recorder, peer = await meet()
    successor = Recorder()
    recorder.transport.set_protocol(successor)
    assert recorder.transport.get_protocol() is successor
    peer.send(b"for the next")
    await successor.until(lambda: successor.received == b"for the next")
    assert recorder.received == b""
    peer.close()


@on_broker_loop
async def test_it_knows_both_ends() -> None:
    recorder, peer = await meet()
    told = recorder.transport.get_extra_info
    assert told("peername") == peer.getsockname()
    assert told("sockname") == peer.getpeername()
    assert told("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert told("ssl_object") is None
    assert told("cipher", "none") == "none"
    peer.close()


@on_broker_loop
async def test_limits_are_as_asyncio_has_them() -> None:
    recorder, peer = await meet()
    transport = recorder.transport
    transport.set_write_buffer_limits(high=1000)
    assert transport.get_write_buffer_limits() == (250, 1000)
    transport.set_write_buffer_limits(low=100)
    assert transport.get_write_buffer_limits() == (100, 400)
    transport.set_write_buffer_limits()
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
    peer.close()
