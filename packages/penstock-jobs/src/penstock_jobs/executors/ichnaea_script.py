"""The three types of the Ichnaea clients, done by a script with the arguments theirs has:

    SCRIPT --aging=DIR --models=ZIP build data.csv | predict test.csv | fake DURATION:INTERVAL

Any executable that keeps to it will do, `penstock science` for one; here or on another machine.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from penstock_jobs.errors import CommandError, JobFailed
from penstock_jobs.executors.commands import ProgressLines, check_outcome
from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.model import (
    Aging,
    BuildModels,
    Dataset,
    Fake,
    JobRequest,
    PredictModels,
    VoteResult,
)
from penstock_jobs.shells.shell import Shell, TimeLimits, WorkFolder

_SAMPLE: Final = re.compile(r"\*\*\*New sample, # (\d+) / (\d+)")
#: The last line of each scheme: what was predicted, the confusion matrix row by row, the error.
_SUMMARY: Final = re.compile(
    r".*-([A-Z][A-Z0-9_]*): (\d+)/(\d+), (\d+) (\d+) (\d+) (\d+), ([\d.]+)%"
)
_MODELS: Final = "models.zip"


class IchnaeaScriptExecutor:
    types = ("fake", "build_models", "predict_models")

    def __init__(self, shell: Callable[[], Shell], script: Sequence[str]) -> None:
        self._make_shell = shell
        self._shell: Shell | None = None
        self._script = tuple(script)

    async def open(self) -> None:
        self._shell = self._make_shell()

    async def close(self) -> None:
        if self._shell is not None:
            await self._shell.close()

    async def carry_out(
        self, request: JobRequest, limits: TimeLimits, report: AttemptListener
    ) -> JobOutcome:
        assert self._shell is not None, "not opened"
        async with self._shell.folder() as folder:
            try:
                if isinstance(request, Fake):
                    return await self._fake(folder, request, limits, report)
                if isinstance(request, BuildModels):
                    return await self._build(folder, request, limits, report)
                assert isinstance(request, PredictModels)
                return await self._predict(folder, request, limits, report)
            except CommandError as error:
                raise JobFailed(f"failed command result: {error}") from error

    async def _fake(
        self, folder: WorkFolder, request: Fake, limits: TimeLimits, report: AttemptListener
    ) -> JobOutcome:
        span = f"{request.duration:g}:{request.interval:g}"
        check_outcome(
            await folder.run([*self._script, "fake", span], ProgressLines(report).hear, limits)
        )
        return JobOutcome()

    async def _build(
        self, folder: WorkFolder, request: BuildModels, limits: TimeLimits, report: AttemptListener
    ) -> JobOutcome:
        data = await folder.write("data.csv", csv_text(request.dataset))
        for name, text in _trial_files(request):
            await folder.write(f"aging/{name}", text)
        options = [f"--aging={folder.path}/aging", f"--models={folder.path}/{_MODELS}"]
        ended = await folder.run(
            [*self._script, *options, "build", data], ProgressLines(report).hear, limits
        )
        check_outcome(ended)
        try:
            return JobOutcome(models=await folder.read(_MODELS))
        except CommandError as error:  # theirs ends well even when R did not
            said = ended.errors.strip() or ended.output.strip()
            raise JobFailed(f"no models were built: {said[-2_000:] or error}") from error

    async def _predict(
        self,
        folder: WorkFolder,
        request: PredictModels,
        limits: TimeLimits,
        report: AttemptListener,
    ) -> JobOutcome:
        data = await folder.write("test.csv", csv_text(request.dataset))
        models = await folder.write(_MODELS, request.models)
        lines: list[str] = []
        heard = ProgressLines(report)

        def hear(line: str) -> None:
            lines.append(line)
            if found := _SAMPLE.match(line):
                at, count = int(found[1]), int(found[2])
                report.told((at - 1) / max(count, 1), None, (VoteResult("", count, at - 1),))
            else:
                heard.hear(line)

        command = [*self._script, f"--models={models}", "predict", data]
        ended = await folder.run(command, hear, limits)
        check_outcome(ended)
        results = tuple(read_predictions(lines))
        if not results:
            raise JobFailed(f"nothing was predicted: {ended.errors.strip()[-2_000:]}")
        return JobOutcome(results)


def csv_text(dataset: Dataset) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\n")
    writer.writerow(dataset)
    writer.writerows(zip_longest(*dataset.values(), fillvalue=""))
    return text.getvalue().encode()


def _trial_files(request: BuildModels) -> Iterator[tuple[str, bytes]]:
    for column, agings in request.agings.items():
        plain = re.sub(r"[^A-Za-z0-9]", "", column)
        for aging in agings:
            yield f"env{plain}-{_season(aging)}.txt", _trials(aging)


def _season(aging: Aging) -> str:
    """Half a year around the middle is summer."""
    position = 0.5 if aging.position is None else aging.position % 1
    return "Summer" if 0.25 <= position < 0.75 else "Winter"


def _trials(aging: Aging) -> bytes:
    return "\n".join(
        "".join(f"{hours!r} {value!r}\n" for hours, value in trial) for trial in aging.trials
    ).encode()


def read_predictions(lines: Sequence[str]) -> Iterator[VoteResult]:
    """What the script prints of each way of voting."""
    table: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("Table:"):
            table, inside = [], True
        elif line.startswith("Summary:"):
            inside = False
        elif inside:
            table.append(line)
        elif found := _SUMMARY.fullmatch(line.rstrip()):
            predicted, total, *cells = (int(each) for each in found.groups()[1:7])
            yield VoteResult(
                found[1],
                total,
                predicted,
                min(float(found[8]) / 100, 1.0),
                read_table(table),
                {"-1": (cells[0], cells[2]), "1": (cells[1], cells[3])},
            )


def read_table(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """A data frame as R prints it: columns side by side, and below each other where many."""
    columns: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines:
        words = line.split()
        if line[:1].isspace():
            names = words
            columns.update((name, []) for name in names)
        else:
            for name, word in zip(names, words[1:], strict=False):
                columns[name].append("" if word in ("NA", "<NA>") else word)
    return {name: tuple(cells) for name, cells in columns.items()}
