"""Bars for transfers that take long: on a terminal, below what else is said; else not at all."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.pump.standing import LONG_SECONDS
from penstock.pump.transfers import Transfers

if TYPE_CHECKING:
    from rich.progress import Progress

_LOOK_SECONDS: Final = 0.2


async def show_transfers(transfers: Transfers) -> None:
    """Until cancelled."""
    if not sys.stderr.isatty():
        return
    from rich.console import Console

    with new_bars(Console(stderr=True)) as bars:
        while True:
            long = transfers.long(LONG_SECONDS)
            draw(bars, ((each.name, each.done, each.total) for each in long))
            await asyncio.sleep(_LOOK_SECONDS)


def new_bars(console: object = None) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console if isinstance(console, Console) else None,
        transient=True,
    )


def draw(bars: Progress, transfers: Iterable[tuple[str, int, int | None]]) -> None:
    """A bar for each of these, and none for what has ended."""
    known = {task.description: task.id for task in bars.tasks}
    seen = set()
    for name, done, total in transfers:
        seen.add(name)
        if name not in known:
            known[name] = bars.add_task(name, total=total)
        bars.update(known[name], completed=done, total=total)
    for name, task in known.items():
        if name not in seen:
            bars.remove_task(task)
