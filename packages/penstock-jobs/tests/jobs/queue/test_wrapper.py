"""A script of the Ichnaea kind: what it is given, and how what it prints is read."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock_jobs.errors import JobFailed
from penstock_jobs.executors.executor import JobOutcome
from penstock_jobs.executors.ichnaea_script import IchnaeaScriptExecutor, read_predictions
from penstock_jobs.formats.csv import write_csv
from penstock_jobs.model import Aging, BuildModels, Fake, JobRequest, PredictModels, VoteResult
from penstock_jobs.science.report import data_frame
from penstock_jobs.shells.local import LocalShell

SCRIPT = """
import pathlib, sys
options = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--"))
verb, what = [word for word in sys.argv[1:] if not word.startswith("--")]
if verb == "fake":
    print("percent: 12.5%"); print("finish: 2026-05-05T10:10:32+02:00", what)
elif verb == "build":
    files = sorted(path.name for path in pathlib.Path(options["--aging"]).iterdir())
    pathlib.Path(options["--models"]).write_text(pathlib.Path(what).read_text() + ",".join(files))
else:
    print("***New sample, # 1 / 2"); print("***New sample, # 2 / 2")
    print("Table:"); print("  CLASS PRED"); print("1 P1-HM1    1"); print("2 P1-CW1   NA")
    print("Summary:"); print("test-ERROR: 1/2, 0 0 0 1, 0%")
"""


class Heard:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self.counts: list[int] = []

    def progress(
        self, share: float, finish: datetime | None = None, results: tuple[VoteResult, ...] = ()
    ) -> None:
        self.shares.append(share)
        self.counts += [each.predicted_samples for each in results]

    def output(self, text: str) -> None: ...

    def done(self, outcome: JobOutcome) -> None: ...

    def failed(self, error: Exception) -> None: ...


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Any]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    work = IchnaeaScriptExecutor(LocalShell(tmp_path), [sys.executable, str(script)])
    heard = Heard()

    async def carry_out(request: JobRequest) -> tuple[JobOutcome, Heard]:
        return await work.run(request, heard), heard

    yield carry_out
    await work.close()


async def test_progress_of_a_fake_is_told(run: Any) -> None:
    _, heard = await run(Fake("1", 2, 0.5))

    assert heard.shares[0] == 0.125


async def test_a_build_is_given_its_files_and_gives_its_models(run: Any) -> None:
    trials = (((0.0, 7.0), (24.0, 6.5)),)
    agings = {"FRNAPH.I": (Aging(trials, 0.5), Aging(trials, 0.0))}

    outcome, _ = await run(BuildModels("1", {"CLASS": ("a", "b"), "FC": ("1,5",)}, agings))

    content = outcome.models.decode()
    assert content == "CLASS;FC\na;1,5\nb;\nenvFRNAPH.I-Estiu.txt,envFRNAPH.I-Hivern.txt"


async def test_a_build_that_only_takes_time_is_a_fake(run: Any) -> None:
    outcome, heard = await run(BuildModels("1", duration=2.0, interval=0.5))

    assert (outcome.models, heard.shares[0]) == (b"", 0.125)


async def test_a_prediction_is_read_from_what_is_printed(run: Any) -> None:
    outcome, heard = await run(PredictModels("1", {"CLASS": ("a",)}, b"zip"))

    [result] = outcome.results
    assert (result.name, result.total_samples, result.predicted_samples) == ("ERROR", 2, 1)
    assert result.dataset == {"CLASS": ("P1-HM1", "P1-CW1"), "PRED": ("1", "")}
    assert result.confusion == {"-1": (0, 0), "1": (0, 1)}
    assert heard.counts == [0, 1]


async def test_a_script_that_is_not_there_is_told(tmp_path: Path) -> None:
    work = IchnaeaScriptExecutor(LocalShell(tmp_path), ["/no/such/script"])
    with pytest.raises(JobFailed, match="cannot run '/no/such/script'"):
        await work.run(Fake("1"), Heard())
    await work.close()


def test_tables_as_our_own_script_prints_them_are_read() -> None:
    columns = {f"COLUMN{n}": ("P1-HM1", "", "<20") for n in range(12)}  # too many for one line
    lines = ["Table:", *data_frame(columns), "Summary:", "x-ERROR2: 2/2, 1 0 0 1, 0%"]

    [result] = read_predictions(lines)

    assert result.dataset == columns


def test_columns_of_unequal_length_become_rows() -> None:
    assert write_csv({"CLASS": ("a", "b"), "FC": ("1,5",)}) == "CLASS;FC\na;1,5\nb;\n"
