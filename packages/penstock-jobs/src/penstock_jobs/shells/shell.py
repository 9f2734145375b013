"""What a shell is: a place with a folder for one piece of work, files in it, and commands.

A command is a list of words, never a line for a shell to take apart. It is given a time: when that
is over it is asked to end, and a moment later it is ended, with everything it has started. What it
prints is handed on line by line as it comes, and a bounded end of it is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

#: How long a command that is asked to end may take to do so.
GRACE_SECONDS: Final = 5.0
#: What is kept of what a command prints, on each of its outputs: the end.
OUTPUT_TAIL_BYTES: Final = 256 * 1024
#: A line longer than this is handed on in pieces.
LINE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """When a command is asked to end, and when it is ended; None is never."""

    soft: float | None = None
    hard: float | None = None
    grace: float = GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended."""

    status: int  #: of the process; negative is the signal that ended it
    output: str
    errors: str
    reason: str = ""  #: why it was ended, if it was

    @property
    def good(self) -> bool:
        return self.status == 0 and not self.reason


class WorkFolder(Protocol):
    """A place of one piece of work; gone when the work is."""

    @property
    def path(self) -> str: ...

    async def write(self, name: str, content: bytes) -> str:
        """A file; its path, as a command sees it."""

    async def read(self, name: str) -> bytes: ...

    async def run(
        self,
        command: Sequence[str],
        told: Callable[[str], None] = lambda _: None,
        limits: TimeLimits = TimeLimits(),  # noqa: B008 - frozen
    ) -> CommandOutcome:
        """`told` hears each line of the output. Cancelling ends the command first."""


class Shell(Protocol):
    def folder(self) -> AbstractAsyncContextManager[WorkFolder]: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class OutputTail:
    """The end of what was printed, in bounded memory, and how much came before it."""

    _lines: deque[bytes] = field(default_factory=deque)
    _size: int = 0
    _dropped: int = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        while self._size > OUTPUT_TAIL_BYTES:
            gone = self._lines.popleft()
            self._size -= len(gone)
            self._dropped += len(gone)

    @property
    def text(self) -> str:
        told = f"[{self._dropped:,} bytes before this]\n" if self._dropped else ""
        return told + b"".join(self._lines).decode("utf-8", "replace")


# When a command's time is over: it is asked to end, and after a while it is ended.


async def wait_within_limits(
    limits: TimeLimits,
    ended: Callable[[], Awaitable[object]],
    end: Callable[[float], Awaitable[None]],
) -> str:
    """Wait until it has `ended`, or `end` it with so much grace. Why, if it had to be ended."""
    first = min((each for each in (limits.soft, limits.hard) if each is not None), default=None)
    try:
        await asyncio.wait_for(_waited(ended), first)
    except TimeoutError:
        await end(_grace(limits))
        return f"ended after {first:g} seconds"
    except asyncio.CancelledError:
        await end(limits.grace)
        raise
    return ""


async def _waited(ended: Callable[[], Awaitable[object]]) -> None:
    await ended()


def _grace(limits: TimeLimits) -> float:
    if limits.soft is None:
        return 0.0
    return limits.grace if limits.hard is None else max(limits.hard - limits.soft, 0.0)


# Lines from a pipe, however long and however many.


async def read_lines(
    read: Callable[[int], Awaitable[bytes]],
    kept: OutputTail,
    told: Callable[[str], None] = lambda _: None,
) -> None:
    """To the end. A line longer than there is room for comes in pieces."""
    rest = b""
    while data := await read(LINE_BYTES):
        lines = (rest + data).splitlines(keepends=True)
        rest = lines.pop() if not lines[-1].endswith(b"\n") and len(lines[-1]) < LINE_BYTES else b""
        for line in lines:
            _hand_on(line, kept, told)
    if rest:
        _hand_on(rest, kept, told)


def _hand_on(line: bytes, kept: OutputTail, told: Callable[[str], None]) -> None:
    kept.add(line)
    told(line.decode("utf-8", "replace").rstrip("\r\n"))
