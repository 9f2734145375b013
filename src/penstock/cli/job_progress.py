"""A bar that says how far a job is, and when it will be done."""

from __future__ import annotations

from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

if TYPE_CHECKING:
    from penstock.jobs.model import Response


class Bar:
    """On standard error: standard output is for results."""

    def __init__(self, title: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=1.0, left="waiting")

    def move(self, response: Response) -> None:
        left = "running"
        if response.end is not None:
            seconds = max((response.end - datetime.now(UTC)).total_seconds(), 0.0)
            when = response.end.astimezone().strftime("%H:%M:%S")
            left = f"done at {when}, in {seconds:.0f} s"
        self._progress.update(self._task, completed=response.progress, left=left)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
