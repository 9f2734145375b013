"""The three Ichnaea types, run by a script with the arguments of the Ichnaea script:

    SCRIPT --aging=DIR --models=ZIP build data.csv | predict test.csv | fake DURATION:INTERVAL

Any executable with these arguments works, for example `penstock science`, here or on another
machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_jobs.errors import CommandError, JobFailed
from penstock_jobs.executors.commands import ProgressReader, check_outcome
from penstock_jobs.executors.executor import AttemptListener, JobOutcome
from penstock_jobs.formats.csv import write_csv
from penstock_jobs.model import (
    Aging,
    BuildModels,
    Fake,
    JobRequest,
    PredictModels,
    VoteResult,
    as_fake,
)
from penstock_jobs.science.indicators import trials_file
from penstock_jobs.shells.shell import CommandOutcome, CommandShell, WorkFolder

_SAMPLE: Final = re.compile(r"\*\*\*New sample, # (\d+) / (\d+)")
#: The last line of a scheme: predicted samples, the confusion matrix row by row, the error.
_SUMMARY: Final = re.compile(
    r".*-([A-Z][A-Z0-9_]*): (\d+)/(\d+), (\d+) (\d+) (\d+) (\d+), ([\d.]+)%"
)
_MODELS: Final = "models.zip"


class IchnaeaScriptExecutor:
    types = ("fake", "build_models", "predict_models")

    def __init__(self, shell: CommandShell, script: Sequence[str]) -> None:
        self._shell = shell
        self._script = tuple(script)

    async def close(self) -> None:
        await self._shell.close()

    async def run(self, request: JobRequest, listener: AttemptListener) -> JobOutcome:
        async with self._shell.folder() as folder:
            attempt = ScriptAttempt(self._script, folder, listener)
            try:
                trial = request if isinstance(request, Fake) else as_fake(request)
                if trial is not None:
                    return await attempt.fake(trial)
                if isinstance(request, BuildModels):
                    return await attempt.build(request)
                assert isinstance(request, PredictModels)
                return await attempt.predict(request)
            except CommandError as error:
                raise JobFailed(f"failed command result: {error}") from error


@dataclass(frozen=True, slots=True)
class ScriptAttempt:
    script: tuple[str, ...]
    folder: WorkFolder
    listener: AttemptListener

    async def fake(self, request: Fake) -> JobOutcome:
        await self._run("fake", f"{request.duration:g}:{request.interval:g}")
        return JobOutcome()

    async def build(self, request: BuildModels) -> JobOutcome:
        folder = self.folder
        data = await folder.write("data.csv", write_csv(request.dataset).encode())
        for name, text in _trial_files(request):
            await folder.write(f"aging/{name}", text)
        options = f"--aging={folder.path}/aging", f"--models={folder.path}/{_MODELS}"
        outcome = await self._run(*options, "build", data)
        try:
            return JobOutcome(models=await folder.read(_MODELS))
        except CommandError as error:  # the Ichnaea script succeeds even if R failed
            output = outcome.errors.strip() or outcome.output.strip()
            raise JobFailed(f"no models were built: {output[-2_000:] or error}") from error

    async def predict(self, request: PredictModels) -> JobOutcome:
        data = await self.folder.write("test.csv", write_csv(request.dataset).encode())
        models = await self.folder.write(_MODELS, request.models)
        lines: list[str] = []

        def read(line: str) -> None:
            lines.append(line)
            if match := _SAMPLE.match(line):
                at, count = int(match[1]), int(match[2])
                counts = VoteResult("", count, at - 1)
                self.listener.progress((at - 1) / max(count, 1), None, (counts,))

        outcome = await self._run(f"--models={models}", "predict", data, on_line=read)
        results = tuple(read_predictions(lines))
        if not results:
            raise JobFailed(f"nothing was predicted: {outcome.errors.strip()[-2_000:]}")
        return JobOutcome(results)

    async def _run(
        self, *arguments: str, on_line: Callable[[str], None] = lambda _: None
    ) -> CommandOutcome:
        progress = ProgressReader(self.listener)

        def read(line: str) -> None:
            on_line(line)
            progress.read(line)

        command = [*self.script, *arguments]
        outcome = await self.folder.run(command, read, progress.print)
        check_outcome(outcome)
        return outcome


def _trial_files(request: BuildModels) -> Iterator[tuple[str, bytes]]:
    for column, agings in request.agings.items():
        for aging in agings:
            yield trials_file(column, aging.position), _trials(aging)


def _trials(aging: Aging) -> bytes:
    return "\n".join(
        "".join(f"{hours!r} {value!r}\n" for hours, value in trial) for trial in aging.trials
    ).encode()


def read_predictions(lines: Sequence[str]) -> Iterator[VoteResult]:
    """One result for each scheme the script prints."""
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
    """A data frame as R prints it: blocks of columns, one block below the other."""
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
