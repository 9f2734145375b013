"""The interface of shells: a folder for one job, with files and commands in it.

A command is a list of words, never a line for a shell to parse. When its time limit is over it is
asked to end, and after a grace it is ended with everything it has started. Its output is passed on
line by line, and a bounded tail of it is stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

#: Seconds between the request to end and the end.
GRACE_SECONDS: Final = 5.0
#: The stored tail of each output.
OUTPUT_TAIL_BYTES: Final = 256 * 1024
#: A longer line is passed on in pieces.
LINE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds until a command is asked to end (soft), and until it is ended (hard)."""

    soft: float | None = None
    hard: float | None = None
    grace: float = GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    status: int  #: the exit status; negative: the signal that ended it
    output: str
    errors: str
    reason: str = ""  #: why the shell ended it, if it did

    @property
    def succeeded(self) -> bool:
        return self.status == 0 and not self.reason


class WorkFolder(Protocol):
    """The working directory of one job, removed after it."""

    @property
    def path(self) -> str: ...

    async def write(self, name: str, content: bytes) -> str:
        """Returns the path for commands."""

    async def read(self, name: str) -> bytes: ...

    async def run(
        self,
        command: Sequence[str],
        on_line: Callable[[str], None] = lambda _: None,
        limits: TimeLimits = TimeLimits(),  # noqa: B008 - frozen
        on_error_line: Callable[[str], None] = lambda _: None,
    ) -> CommandOutcome:
        """`on_line` is called for each line of output, `on_error_line` for each line of errors.
        Cancellation ends the command first."""


class CommandShell(Protocol):
    def folder(self) -> AbstractAsyncContextManager[WorkFolder]: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class OutputTail:
    _lines: deque[bytes] = field(default_factory=deque)
    _size: int = 0
    _dropped: int = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        while self._size > OUTPUT_TAIL_BYTES:
            dropped = len(self._lines.popleft())
            self._size -= dropped
            self._dropped += dropped

    @property
    def text(self) -> str:
        note = f"[{self._dropped:,} bytes before this]\n" if self._dropped else ""
        return note + b"".join(self._lines).decode("utf-8", "replace")


async def wait_within_limits(
    limits: TimeLimits,
    ended: Callable[[], Awaitable[object]],
    end: Callable[[float], Awaitable[None]],
) -> str:
    """Wait for `ended`, or `end` it with so much grace. Returns the reason if it was ended."""
    first = min((each for each in (limits.soft, limits.hard) if each is not None), default=None)
    try:
        async with asyncio.timeout(first):
            await ended()
    except TimeoutError:
        await end(_grace(limits))
        return f"ended after {first:g} seconds"
    except asyncio.CancelledError:
        await end(limits.grace)
        raise
    return ""


def _grace(limits: TimeLimits) -> float:
    if limits.soft is None:
        return 0.0
    return limits.grace if limits.hard is None else max(limits.hard - limits.soft, 0.0)


async def read_lines(
    read: Callable[[int], Awaitable[bytes]],
    tail: OutputTail,
    on_line: Callable[[str], None] = lambda _: None,
) -> None:
    def add(line: bytes) -> None:
        tail.add(line)
        on_line(line.decode("utf-8", "replace").rstrip("\r\n"))

    rest = b""
    while data := await read(LINE_BYTES):
        lines = (rest + data).splitlines(keepends=True)
        rest = lines.pop() if not lines[-1].endswith(b"\n") and len(lines[-1]) < LINE_BYTES else b""
        for line in lines:
            add(line)
    if rest:
        add(rest)
