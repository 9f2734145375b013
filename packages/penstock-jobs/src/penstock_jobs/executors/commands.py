"""Commands, run in a folder of their own, here or on another machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from penstock_jobs.errors import JobFailed, WorkNotPermitted
from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.model import CommandRun
from penstock_jobs.shells.shell import CommandOutcome, CommandShell

_MAX_ERROR_LENGTH: Final = 4_000
_PERCENT: Final = re.compile(r"\s*percent:\s*(\d+(?:\.\d*)?|\.\d+)\s*%")
_FINISH: Final = re.compile(r"\s*finish:\s*(\S.*)")
_TIME: Final = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?: (?P<half>AM|PM))?"
_ZONE: Final = r"(?P<zone>[A-Z]{3,5}|[+-]\d{2,4})"
_DAY: Final = r"(?P<day>\d{1,2})\.?"
_MONTH: Final = r"(?:d['’]|de )?(?P<month>[^\W\d]+)\.?"
#: As `date` prints it: `Mon May  5 10:10:32 CEST 2014`, `lun may 5 10:10:32 CEST 2014`, and
#: `lun 05 may 2014 10:10:32 CEST` of later versions.
_DATES: Final = (
    re.compile(rf"[^\W\d]+\.?,? {_MONTH} +{_DAY} {_TIME} {_ZONE} (?P<year>\d{{4}})"),
    re.compile(rf"[^\W\d]+\.?,? +{_DAY} {_MONTH} {_TIME} {_ZONE} (?P<year>\d{{4}})"),
    re.compile(rf"[^\W\d]+\.?,? +{_DAY} {_MONTH} (?:de )?(?P<year>\d{{4}}),? {_TIME} {_ZONE}"),
)
#: Beginnings of the names of months in English, Spanish, Catalan, French, German, Italian and
#: Portuguese. The `calendar` module has the names of the machine's locale only.
_MONTHS: Final = (
    ("jan", "ene", "gen"), ("feb", "fév", "fev"), ("mar", "mär"), ("apr", "abr", "avr"),
    ("may", "mai", "mag"), ("jun", "juin", "giu"), ("jul", "juil", "lug"), ("aug", "ago", "aoû"),
    ("sep", "set"), ("oct", "okt", "ott", "out"), ("nov",), ("dec", "dic", "des", "déc", "dez"),
)  # fmt: skip
#: Hours east of Greenwich, for names that mean one zone only.
_ZONES: Final = {
    "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3,
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
    "JST": 9, "NZST": 12, "NZDT": 13,
}  # fmt: skip


class CommandExecutor:
    """`allowed` are programs as requests name them; `*` allows any."""

    types = ("command",)

    def __init__(self, shell: CommandShell, allowed: Sequence[str]) -> None:
        self._shell = shell
        self._allowed = frozenset(allowed)

    async def close(self) -> None:
        await self._shell.close()

    async def run(self, request: CommandRun, listener: AttemptListener) -> JobOutcome:
        if not self._allowed & {request.argv[0], "*"}:
            raise WorkNotPermitted(f"the program {request.argv[0]!r} is not allowed on this worker")
        async with self._shell.folder() as folder:
            for name, content in request.files.items():
                await folder.write(name, content)
            progress = ProgressReader(listener)
            outcome = await folder.run(request.argv, progress.read, progress.print)
        check_outcome(outcome)
        return JobOutcome(
            value={"status": outcome.status, "output": outcome.output, "errors": outcome.errors}
        )


def check_outcome(outcome: CommandOutcome) -> None:
    """Raises an error with the end of the output if the command failed."""
    if outcome.succeeded:
        return
    output = (outcome.errors.strip() or outcome.output.strip())[-_MAX_ERROR_LENGTH:]
    text = f": {output}" if output else ""
    status = outcome.status
    how = f"signal {-status}" if status < 0 else f"status {status}"
    raise JobFailed(f"the command ended with {how}{text}")


class ProgressReader:
    """Reads progress from the output of a command and reports it.

    The lines are `percent: 12.5%` and `finish: 2026-05-05T10:10:32+02:00`; the finish may also be
    as the program `date` prints it in one of several languages. A date that cannot be read changes
    nothing.
    """

    def __init__(self, listener: AttemptListener) -> None:
        self._listener = listener
        self._progress = CommandProgress()

    def print(self, line: str) -> None:
        self._listener.output(f"{line}\n")

    def read(self, line: str) -> None:
        self.print(line)
        progress = self._progress.after(line)
        if progress != self._progress:
            self._progress = progress
            self._listener.progress(progress.share, progress.finish)


@dataclass(frozen=True, slots=True)
class CommandProgress:
    share: float = 0.0  #: of the work, 0 to 1
    finish: datetime | None = None  #: the estimate

    def after(self, line: str) -> CommandProgress:
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
    found = next((match for each in _DATES if (match := each.fullmatch(text))), None)
    if found is None or (month := _month(found["month"])) is None:
        return None
    zone, half = found["zone"], found["half"]
    east = _ZONES.get(zone)
    if zone[0] in "+-":
        hours, minutes = int(zone[1:3]), int(zone[3:] or 0)
        east_of = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    elif east is not None:
        east_of = timedelta(hours=east)
    else:
        return None
    hour_of_day = int(found["hour"])
    if half:
        hour_of_day = hour_of_day % 12 + (12 if half == "PM" else 0)
    try:
        day_of = datetime(int(found["year"]), month, int(found["day"]), tzinfo=timezone(east_of))
        return day_of.replace(
            hour=hour_of_day, minute=int(found["minute"]), second=int(found["second"])
        )
    except ValueError:
        return None


def _month(name: str) -> int | None:
    start = name.lower()
    return next((at for at, names in enumerate(_MONTHS, 1) if start.startswith(names)), None)
