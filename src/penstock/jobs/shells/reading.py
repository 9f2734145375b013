"""Lines from a pipe, however long and however many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.jobs.shells.shell import LINE_BYTES, Kept


async def read_lines(
    read: Callable[[int], Awaitable[bytes]],
    kept: Kept,
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


def _hand_on(line: bytes, kept: Kept, told: Callable[[str], None]) -> None:
    kept.add(line)
    told(line.decode("utf-8", "replace").rstrip("\r\n"))
