"""The broker's event loop: asyncio's, with a short way from the poll to our own sockets.

asyncio makes an event of every socket that can be read, puts it into a queue and takes it out
again. With a thousand sensors that say little each, that costs as much as what is said. Here our
sockets are served in the poll itself; all else (timers, tasks, TLS, subprocesses) goes asyncio's
way. And whoever collects output can be told when a pass of the loop is over, to send it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import selectors
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

#: The most sockets one pass serves before timers and tasks have their turn.
MOST: Final = 512
#: ... and how long it serves them for. The rest of them comes first in the next pass.
PASS_SECONDS: Final = 0.01


class Poll(selectors.BaseSelector):
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[int, selectors.SelectorKey] = {}  # asyncio's
        self._served: dict[int, Callable[[int], None]] = {}  # ours
        self._over: list[Callable[[], None]] = []
        self._unserved: list[tuple[int, int]] = []  # what the last pass had no time for

    # Ours.

    def serve(self, number: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready` with what has happened, whenever one of these has; it must not raise."""
        self._served[number] = ready
        self._epoll.register(number, events)

    def change(self, number: int, events: int) -> None:
        self._epoll.modify(number, events)

    def forget(self, number: int) -> None:
        del self._served[number]
        self._epoll.unregister(number)

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call it after each pass, and before the loop goes to sleep."""
        self._over.append(callback)

    def no_longer(self, callback: Callable[[], None]) -> None:
        self._over.remove(callback)

    # As asyncio sees it.

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        number = _number(fileobj)
        if number in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        self._epoll.register(number, _interest(events))
        key = self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        return key

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        key = self._keys.pop(_number(fileobj))
        with contextlib.suppress(OSError):  # closed by now, and so forgotten by the system
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

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        for over in self._over:
            over()
        if timeout is None:
            timeout = -1
        elif timeout > 0:
            timeout = math.ceil(timeout * 1e3) * 1e-3  # as epoll counts; never too early
        else:
            timeout = 0
        ready = []
        served = self._served
        if self._unserved:
            found, self._unserved = self._unserved, []
            known = {number for number, _ in found}
            found += [one for one in self._epoll.poll(0, MOST) if one[0] not in known]
        else:
            found = self._epoll.poll(timeout, MOST)
        deadline = 0.0 if len(found) < 2 else monotonic() + PASS_SECONDS
        late = False
        for number, events in found:
            if serve := served.get(number):
                if late:
                    self._unserved.append((number, events))
                else:
                    serve(events)
                    late = deadline > 0 and monotonic() > deadline
            elif key := self._keys.get(number):
                ready.append((key, _happened(events) & key.events))
        for over in self._over:
            over()
        return ready

    def close(self) -> None:
        self._epoll.close()
        self._keys.clear()
        self._served.clear()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return _Keys(self._keys)


class _Keys(Mapping["FileDescriptorLike", selectors.SelectorKey]):
    """What is registered, by number or by whatever has one."""

    __slots__ = ("_keys",)

    def __init__(self, keys: dict[int, selectors.SelectorKey]) -> None:
        self._keys = keys

    def __getitem__(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._keys[_number(fileobj)]

    def __iter__(self) -> Iterator[FileDescriptorLike]:
        return (key.fileobj for key in self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)


class BrokerLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.poll = Poll()
        super().__init__(self.poll)


def new_loop() -> asyncio.AbstractEventLoop:
    """The broker's loop where the system can have it; elsewhere asyncio's serves as well."""
    return BrokerLoop() if hasattr(select, "epoll") else asyncio.new_event_loop()


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
    """An error wakes readers and writers: they meet it when they try."""
    happened = 0
    if events & ~select.EPOLLIN:
        happened |= selectors.EVENT_WRITE
    if events & ~select.EPOLLOUT:
        happened |= selectors.EVENT_READ
    return happened
