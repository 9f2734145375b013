"""Programs, here or on another machine, in a folder of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from penstock_jobs.errors import JobFailed, JobTimeout, WorkNotPermitted
from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.model import CommandRun
from penstock_jobs.shells.shell import CommandOutcome as Ended
from penstock_jobs.shells.shell import Shell, TimeLimits

_SHOWN: Final = 4_000


class CommandExecutor:
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

    async def carry_out(
        self, request: CommandRun, limits: TimeLimits, report: AttemptListener
    ) -> JobOutcome:
        if not self._allowed & {request.argv[0], "*"}:
            raise WorkNotPermitted(f"{request.argv[0]!r} is not among what may be run here")
        assert self._shell is not None, "not opened"
        async with self._shell.folder() as folder:
            for name, content in request.files.items():
                await folder.write(name, content)
            ended = await folder.run(request.argv, ProgressLines(report).hear, limits)
        check_outcome(ended)
        return JobOutcome(
            value={"status": ended.status, "output": ended.output, "errors": ended.errors}
        )


class ProgressLines:
    """Hears the lines of a command, and tells what they say of its progress."""

    def __init__(self, report: AttemptListener) -> None:
        self._report = report
        self._progress = CommandProgress()

    def hear(self, line: str) -> None:
        now = self._progress.after(line)
        if now != self._progress:
            self._progress = now
            self.tell(now.share, now.finish)

    def tell(self, share: float, finish: datetime | None) -> None:
        self._report.told(share, finish)


def check_outcome(ended: Ended) -> None:
    """An error for a command that did not end well, with what it has to say for itself."""
    if ended.good:
        return
    said = (ended.errors.strip() or ended.output.strip())[-_SHOWN:]
    if ended.reason:
        raise JobTimeout(f"{ended.reason}: {said}" if said else ended.reason)
    how = f"signal {-ended.status}" if ended.status < 0 else f"status {ended.status}"
    raise JobFailed(f"the command ended with {how}: {said}" if said else f"it ended with {how}")


# How far a command has come, by the lines it prints.
#
# `percent: 12.5%` and `finish: 2026-05-05T10:10:32+02:00`, or the finish as the program `date`
# prints it in English; a date that cannot be read leaves the estimate as it was.

_PERCENT: Final = re.compile(r"\s*percent:\s*(\d+(?:\.\d*)?|\.\d+)\s*%")
_FINISH: Final = re.compile(r"\s*finish:\s*(\S.*)")
#: `Mon May  5 10:10:32 CEST 2014`, and `Mon May  5 10:10:32 AM CEST 2014` of later versions.
_DATE: Final = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: (AM|PM))? "
    r"([A-Z]{3,5}|[+-]\d{2,4}) (\d{4})"
)
#: Not the `calendar` module's: those are in the language of the machine.
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
#: Hours east of Greenwich. A name that is not here may mean several zones: no guess is made.
_ZONES: Final = {
    "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3,
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
    "JST": 9, "NZST": 12, "NZDT": 13,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommandProgress:
    share: float = 0.0  #: of the work, 0 to 1
    finish: datetime | None = None  #: the estimate

    def after(self, line: str) -> CommandProgress:
        """As the line says, or unchanged if it says nothing of it."""
        if found := _PERCENT.match(line):
            return replace(self, share=min(float(found[1]) / 100, 1.0))
        if found := _FINISH.match(line):
            finish = read_date(found[1].strip())
            return self if finish is None else replace(self, finish=finish)
        return self


def read_date(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return _date(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _date(text: str) -> datetime | None:
    found = _DATE.fullmatch(text)
    if found is None or _MONTHS.find(found[1]) % 3:
        return None
    month, day, hour, minute, second, half, zone, year = found.groups()
    east = _ZONES.get(zone)
    if zone[0] in "+-":
        hours, minutes = int(zone[1:3]), int(zone[3:] or 0)
        east_of = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    elif east is not None:
        east_of = timedelta(hours=east)
    else:
        return None
    hour_of_day = int(hour)
    if half:
        hour_of_day = hour_of_day % 12 + (12 if half == "PM" else 0)
    try:
        day_of = datetime(
            int(year), _MONTHS.index(month) // 3 + 1, int(day), tzinfo=timezone(east_of)
        )
        return day_of.replace(hour=hour_of_day, minute=int(minute), second=int(second))
    except ValueError:
        return None
