"""Commands in a shell, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock_jobs.shells.shell import WorkFolder


def script(text: str) -> list[str]:
    return ["sh", "-c", text]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until_gone(pid: int) -> None:
    await until(lambda: not alive(pid))


async def until(holds: Callable[[], bool]) -> None:
    """Other processes tell nobody that they have ended."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def cancelled(folder: WorkFolder, command: Sequence[str], kill: str = "") -> list[str]:
    """The lines of a command that is cancelled at its first line, and again at the line `kill`."""
    lines: list[str] = []

    def read(line: str) -> None:
        lines.append(line)
        if len(lines) == 1 or line == kill:
            running.cancel()

    running = asyncio.create_task(folder.run(command, read))
    with pytest.raises(asyncio.CancelledError):
        await running
    return lines
