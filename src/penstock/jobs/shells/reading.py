"""Lines from a pipe, however long and however many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.jobs.shells.shell import LINE_BYTES, Kept


async def read_lines(
    stream: asyncio.StreamReader, kept: Kept, told: Callable[[str], None] | None = None
) -> None:
    """To the end. A line longer than there is room for comes in pieces."""
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            line = end.partial
        except asyncio.LimitOverrunError:
            line = await stream.read(LINE_BYTES)
        if not line:
            return
        kept.add(line)
        if told is not None:
            told(line.decode("utf-8", "replace").rstrip("\r\n"))
