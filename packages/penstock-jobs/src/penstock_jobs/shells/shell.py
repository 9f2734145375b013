"""The interface of shells: a folder for one job, with files and commands in it.

A command is a list of words, never a line for a shell to parse. When it is cancelled it is asked to
end, and after the grace of its shell, or when it is cancelled again, it is killed with everything
it has started. Its output is passed on line by
line, and a bounded tail of it is stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

#: Seconds between the request to end and the kill.
GRACE_SECONDS: Final = 5.0
#: The stored tail of each output.
OUTPUT_TAIL_BYTES: Final = 256 * 1024
#: A longer line is passed on in pieces.
LINE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    status: int  #: the exit status; negative: the signal that ended it
    output: str
    errors: str

    @property
    def succeeded(self) -> bool:
        return self.status == 0


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
        on_error_line: Callable[[str], None] = lambda _: None,
    ) -> CommandOutcome:
        """`on_line` is called for each line of output, `on_error_line` for each line of errors.
        Cancellation ends the command first: see `wait_or_end`."""


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


async def wait_or_end(
    ended: Callable[[], Awaitable[object]],
    ask: Callable[[], None],
    kill: Callable[[], None],
    grace: float | None,
) -> None:
    """Wait for a command. When cancelled, `ask` it to end, and `kill` it after the grace, if there
    is one, or when cancelled again."""
    try:
        await ended()
    except asyncio.CancelledError:
        ask()
        try:
            await asyncio.wait_for(ended(), grace)
        except (TimeoutError, asyncio.CancelledError):
            kill()
            await ended()
        raise


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
