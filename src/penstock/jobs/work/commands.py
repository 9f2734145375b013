"""Programs, here or on another machine, in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from penstock.jobs.errors import NotPermitted, OutOfTime, WorkFailed
from penstock.jobs.model import Command
from penstock.jobs.progress import Progress
from penstock.jobs.shells.shell import Limits, Shell
from penstock.jobs.shells.shell import Outcome as Ended
from penstock.jobs.work.kind import Outcome, Report

_SHOWN: Final = 4_000


class CommandWork:
    """`allowed` are programs as requests name them; `*` is any."""

    types = ("command",)

    def __init__(self, shell: Callable[[], Shell], allowed: Sequence[str]) -> None:
        self._make_shell = shell
        self._shell: Shell | None = None
        self._allowed = frozenset(allowed)

    async def open(self) -> None:
        self._shell = self._make_shell()

    async def close(self) -> None:
        if self._shell is not None:
            await self._shell.close()

    async def carry_out(self, request: Command, limits: Limits, report: Report) -> Outcome:
        if not self._allowed & {request.argv[0], "*"}:
            raise NotPermitted(f"{request.argv[0]!r} is not among what may be run here")
        assert self._shell is not None, "not opened"
        async with self._shell.folder() as folder:
            for name, content in request.files.items():
                await folder.write(name, content)
            ended = await folder.run(request.argv, Lines(report).hear, limits)
        check(ended)
        return Outcome(
            value={"status": ended.status, "output": ended.output, "errors": ended.errors}
        )


class Lines:
    """Hears the lines of a command, and tells what they say of its progress."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._progress = Progress()

    def hear(self, line: str) -> None:
        now = self._progress.after(line)
        if now != self._progress:
            self._progress = now
            self.tell(now.share, now.finish)

    def tell(self, share: float, finish: datetime | None) -> None:
        self._report.told(share, finish)


def check(ended: Ended) -> None:
    """An error for a command that did not end well, with what it has to say for itself."""
    if ended.good:
        return
    said = (ended.errors.strip() or ended.output.strip())[-_SHOWN:]
    if ended.reason:
        raise OutOfTime(f"{ended.reason}: {said}" if said else ended.reason)
    how = f"signal {-ended.status}" if ended.status < 0 else f"status {ended.status}"
    raise WorkFailed(f"the command ended with {how}: {said}" if said else f"it ended with {how}")
