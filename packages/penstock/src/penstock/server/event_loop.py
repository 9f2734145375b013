"""The broker's event loop: asyncio's, with a fast path from epoll to the broker's sockets.

For each ready socket asyncio creates a handle, queues it and runs it later. With a thousand sensors
and small messages that costs as much as the messages. Here the broker's sockets are served within
the poll; everything else (timers, tasks, TLS, subprocesses) is asyncio's, and gets its turn when it
has something to do. Callbacks run at the end of each pass, so that output of several reads is sent
together.

Who sends little does not wait for who sends much. A socket whose last read filled the usual buffer
is *bulky*: bulky sockets come last in a pass, and between two of them whoever else has become ready
is served, and its output sent. So a request waits for one large read, not for those of all
publishers.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import Context
from itertools import islice
from select import EPOLLIN, EPOLLOUT
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVarTuple

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike


#: Sockets served in one pass, before timers and tasks.
MAX_EVENTS: Final = 512
#: Time for sockets in one pass; the remaining ones come first in the next.
PASS_SECONDS: Final = 0.01
#: Time for bulky sockets after that; at least one of them is served in each pass.
BULKY_SECONDS: Final = 0.005

#: What is ready of asyncio.
_Ready = list[tuple[selectors.SelectorKey, int]]


class ServedSocket(Protocol):
    is_bulky: bool  #: the last read was large

    def on_ready(self, events: int) -> None:
        """The descriptor is ready; it must not raise."""


class BrokerSelector(selectors.BaseSelector):
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[int, selectors.SelectorKey] = {}  # of asyncio
        # Of the broker, by descriptor; as long as the largest one that was registered.
        self._served: list[ServedSocket | None] = []
        self._on_pass_end: list[Callable[[], None]] = []
        self._unserved: list[tuple[int, int]] = []  # ready in the last pass
        self.has_callbacks = False  #: the loop has something to run, or another timer

    # For the broker.

    def serve(self, number: int, events: int, served: ServedSocket) -> None:
        """Call `on_ready` with the events of a descriptor."""
        self._extend(number)
        self._epoll.register(number, events)
        self._served[number] = served

    def _extend(self, number: int) -> None:
        if number >= len(self._served):
            self._served += [None] * (number + 1 - len(self._served))

    def change(self, number: int, events: int) -> None:
        self._epoll.modify(number, events)

    def forget(self, number: int) -> None:
        self._served[number] = None
        self._epoll.unregister(number)

    def on_pass_end(self, callback: Callable[[], None]) -> None:
        """Call it after each pass, and before the loop sleeps."""
        self._on_pass_end.append(callback)

    def off_pass_end(self, callback: Callable[[], None]) -> None:
        self._on_pass_end.remove(callback)

    # For asyncio.

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        number = _number(fileobj)
        if number in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        self._extend(number)
        self._epoll.register(number, _interest(events))
        key = self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        return key

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        key = self._keys.pop(_number(fileobj))
        with contextlib.suppress(OSError):  # closed, and so removed by the system
            self._epoll.unregister(key.fd)
        return key

    def modify(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        key = self._keys[_number(fileobj)]
        if events != key.events:
            self._epoll.modify(key.fd, _interest(events))
        changed = self._keys[key.fd] = key._replace(events=events, data=data)
        return changed

    def select(self, timeout: float | None = None) -> _Ready:
        self.has_callbacks = False
        self._end_pass()
        until = math.inf if timeout is None else monotonic() + timeout
        while True:
            if self.has_callbacks:
                timeout = 0
            ready, is_idle = self._serve_ready(-1 if timeout is None else timeout)
            self._end_pass()
            # asyncio's own work has its turn; without any, it would only come back.
            if ready or is_idle or self._unserved or self.has_callbacks or timeout == 0:
                return ready
            if timeout is not None:
                timeout = max(0, until - monotonic())

    def _end_pass(self) -> None:
        for callback in self._on_pass_end:
            callback()

    def _serve_ready(self, timeout: float) -> tuple[_Ready, bool]:
        """Poll once, and serve the broker's sockets; returns what is ready of asyncio, and whether
        nothing was ready at all."""
        if timeout > 0:
            timeout = math.ceil(timeout * 1e3) * 1e-3  # as epoll counts; never too early
        ready: _Ready = []
        served = self._served
        if self._unserved:
            found, self._unserved = self._unserved, []
            known = {number for number, _ in found}
            found += [one for one in self._epoll.poll(0, MAX_EVENTS) if one[0] not in known]
        else:
            found = self._epoll.poll(timeout, MAX_EVENTS)
        deadline = 0.0 if len(found) < 2 else monotonic() + PASS_SECONDS
        late = False
        bulky: list[tuple[int, int]] = []
        for event in found:
            number, events = event
            ready_socket = served[number]
            if ready_socket is not None:
                if ready_socket.is_bulky:
                    bulky.append(event)
                elif late:
                    self._unserved.append(event)
                else:
                    ready_socket.on_ready(events)
                    late = deadline > 0 and monotonic() > deadline
            elif key := self._keys.get(number):
                ready.append((key, _happened(events) & key.events))
        if bulky:
            self._serve_bulky(bulky, ready, len(found) > len(bulky))
        return ready, not found

    def _serve_bulky(self, bulky: list[tuple[int, int]], ready: _Ready, others: bool) -> None:
        """One by one, as long as nothing of asyncio is ready; `others` were served before, whose
        output must not wait."""
        served = self._served
        last = len(bulky) - 1
        deadline = monotonic() + BULKY_SECONDS if last else 0.0
        for at, (number, events) in enumerate(bulky):
            if others and last:
                self._end_pass()
            ready_socket = served[number]
            if ready_socket is not None:
                ready_socket.on_ready(events)
            if at < last:
                others = self._serve_small(ready)
                if ready or monotonic() > deadline:
                    self._unserved += bulky[at + 1 :]
                    return

    def _serve_small(self, ready: _Ready) -> bool:
        """Whoever is ready by now and not bulky; whether there was anybody."""
        served = self._served
        found = False
        for number, events in self._epoll.poll(0, MAX_EVENTS):
            ready_socket = served[number]
            if ready_socket is not None:
                if not ready_socket.is_bulky:
                    ready_socket.on_ready(events)
                    found = True
            elif key := self._keys.get(number):
                ready.append((key, _happened(events) & key.events))
        return found

    def close(self) -> None:
        self._epoll.close()
        self._keys.clear()
        self._served.clear()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return _Keys(self._keys)


class _Keys(Mapping["FileDescriptorLike", selectors.SelectorKey]):
    """Registered keys by descriptor or file object."""

    def __init__(self, keys: dict[int, selectors.SelectorKey]) -> None:
        self._keys = keys

    def __getitem__(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._keys[_number(fileobj)]

    def __iter__(self) -> Iterator[FileDescriptorLike]:
        return (key.fileobj for key in self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)


_Arguments = TypeVarTuple("_Arguments")


class BrokerEventLoop(asyncio.SelectorEventLoop):
    time = staticmethod(monotonic)  # asyncio's clock, without a call in Python for each read

    def __init__(self) -> None:
        self.poll = BrokerSelector()
        super().__init__(self.poll)

    def call_soon(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self.poll.has_callbacks = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.poll.has_callbacks = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        self.poll.has_callbacks = True
        super().stop()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The broker's loop where there is epoll, else asyncio's."""
    return BrokerEventLoop() if hasattr(select, "epoll") else asyncio.new_event_loop()


def _number(fileobj: FileDescriptorLike) -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _interest(events: int) -> int:
    wanted = 0
    if events & selectors.EVENT_READ:
        wanted |= select.EPOLLIN
    if events & selectors.EVENT_WRITE:
        wanted |= select.EPOLLOUT
    return wanted


def _happened(events: int) -> int:
    """Errors wake readers and writers."""
    happened = 0
    if events & ~select.EPOLLIN:
        happened |= selectors.EVENT_WRITE
    if events & ~select.EPOLLOUT:
        happened |= selectors.EVENT_READ
    return happened


#: The default of `max_size`.
READ_BYTES: Final = 64 * 1024
#: The default high-water mark of the write buffer.
WRITE_HIGH_WATER: Final = 64 * 1024
#: Buffers in one `sendmsg`.
MAX_IOVECS: Final = 64


class SocketTransport(asyncio.Transport):
    """A plain TCP connection on the broker's loop, with asyncio's transport contract.

    Data is written to the socket at once; what it does not take is buffered.
    """

    __slots__ = (
        "_closing",
        "_here",
        "_high",
        "_interest",
        "_loop",
        "_lost",
        "_low",
        "_number",
        "_paused",
        "_peer",
        "_pending",
        "_pending_bytes",
        "_protocol",
        "_reading",
        "_shutting",
        "_socket",
        "is_bulky",
        "max_size",
    )

    def __init__(
        self,
        loop: BrokerEventLoop,
        connection: socket.socket,
        peer: Any,
        here: Any,
        protocol: asyncio.Protocol,
    ) -> None:
        """Of both addresses. Calls `connection_made` of the protocol."""
        self._loop = loop
        self._socket = connection
        self._number = connection.fileno()
        self._peer = peer
        self._here = here
        self._protocol = protocol
        self._pending: deque[memoryview] | None = None  # few connections ever have any
        self._pending_bytes = 0
        self._high = WRITE_HIGH_WATER
        self._low = WRITE_HIGH_WATER // 4
        self._interest = 0
        self._reading = True
        self._paused = False
        self._shutting = False  # the writing half, after the buffer
        self._closing = False
        self._lost = False
        self.max_size = READ_BYTES
        self.is_bulky = False
        protocol.connection_made(self)
        self._want()

    # Reading.

    def on_ready(self, events: int) -> None:
        if events & EPOLLOUT:
            self._write_pending()
        if events & ~EPOLLOUT:
            if not self._reading or self._closing:
                self._write_pending()  # detects errors while not reading
                return
            try:
                data = self._socket.recv(self.max_size)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(error)
                return
            self.is_bulky = len(data) >= READ_BYTES
            try:
                if data:
                    self._protocol.data_received(data)
                elif self._protocol.eof_received():
                    self.pause_reading()
                else:
                    self.close()
            except Exception as error:
                self._fail(error, "data_received failed")

    def pause_reading(self) -> None:
        self._reading = False
        self._want()

    def resume_reading(self) -> None:
        self._reading = True
        self._want()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._shutting or not data:
            return
        if not self._pending_bytes:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._lose(error)
                return
            if sent == len(data):
                return
            data = memoryview(bytes(data))[sent:]
        self._buffer(memoryview(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _buffer(self, data: memoryview) -> None:
        if self._pending is None:
            self._pending = deque()
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._want()
        if self._pending_bytes > self._high and not self._paused:
            self._paused = True
            self._notify(self._protocol.pause_writing)

    def _write_pending(self) -> None:
        pending = self._pending
        if not pending:
            return
        try:
            sent = self._socket.sendmsg(islice(pending, MAX_IOVECS))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        self._pending_bytes -= sent
        while sent:
            first = pending.popleft()
            if sent < len(first):
                pending.appendleft(first[sent:])
            sent -= min(sent, len(first))
        if self._paused and self._pending_bytes <= self._low:
            self._paused = False
            self._notify(self._protocol.resume_writing)
        if not self._pending_bytes:
            self._all_written()

    def _all_written(self) -> None:
        self._pending = None
        if self._closing:
            self._lose(None)
            return
        if self._shutting:
            self._shut()
        self._want()

    def write_eof(self) -> None:
        if not self._shutting and not self._closing:
            self._shutting = True
            if not self._pending_bytes:
                self._shut()

    def _shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._lose(error)

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = WRITE_HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and low at least 0")
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return self._pending_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    # Close.

    def close(self) -> None:
        """After the buffer was written."""
        if self._closing:
            return
        self._closing = True
        if self._pending_bytes:
            self._want()
        else:
            self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def is_closing(self) -> bool:
        return self._closing

    def _lose(self, error: OSError | None) -> None:
        """The protocol is notified in the next pass, not within its own call."""
        if self._lost:
            return
        self._lost = self._closing = True
        self._pending = None
        self._pending_bytes = 0
        self._want()
        self._loop.call_soon(self._end, error)

    def _end(self, error: OSError | None) -> None:
        protocol = self._protocol
        del self._protocol  # a reference cycle
        try:
            protocol.connection_lost(error)
        finally:
            self._socket.close()

    def _notify(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:
            self._fail(error, "flow control callback failed")

    def _fail(self, error: Exception, message: str) -> None:
        self._loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
        self._lose(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._peer
        if name == "socket":
            return self._socket
        if name == "sockname":
            return self._here
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.Protocol:
        return self._protocol

    def _want(self) -> None:
        """Register for what is needed. With nothing to wait for the descriptor is removed, because
        errors would wake the loop again and again."""
        wanted = 0
        if self._reading and not self._closing:
            wanted = EPOLLIN
        if self._pending_bytes:
            wanted |= EPOLLOUT
        if wanted == self._interest:
            return
        poll = self._loop.poll
        if not wanted:
            poll.forget(self._number)
        elif not self._interest:
            poll.serve(self._number, wanted, self)
        else:
            poll.change(self._number, wanted)
        self._interest = wanted
