"""`penstock job submit`: what its flags make of files, as `--debug` shows it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest
from typer.testing import CliRunner

import penstock_jobs.client
from penstock_jobs.commands.job import app as jobs
from penstock_jobs.commands.submit import app
from penstock_jobs.executors.ichnaea_script import read_predictions
from penstock_jobs.formats import MessageFormat
from penstock_jobs.model import JobOptions, JobRequest, JobResponse, VoteResult
from penstock_jobs.queue.topology import Durability
from penstock_jobs.science import synthetic

TRIAL = "0 5.0\n24 4.5\n"


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    columns = synthetic.reference_columns(1)
    rows = [";".join(row) for row in zip(*columns.values(), strict=True)]
    file = tmp_path / "reference.csv"
    file.write_text("\n".join([";".join(columns), *rows]))
    return file


def submitted(*words: object) -> dict[str, object]:
    told = CliRunner().invoke(app, [*map(str, words), "--debug"])
    assert told.exit_code == 0, told.output
    found: dict[str, object] = json.loads(told.stdout)
    return found


@pytest.mark.parametrize(
    ("name", "pattern", "flags"),
    [
        ("envFC-Estiu.txt", "", ()),
        ("envFC-Summer.txt", "env%column%-%aging%.txt", ()),
        ("FC_Sommer.dat", "%column%_%aging%.dat", ("--aging-positions", "Sommer:0.5,Winter:0")),
    ],
)
def test_trials_are_found_by_a_folder_or_a_pattern(
    tmp_path: Path, reference: Path, name: str, pattern: str, flags: tuple[str, ...]
) -> None:
    folder = tmp_path / "aging"
    folder.mkdir()
    (folder / name).write_text(TRIAL)
    (folder / "readme.txt").write_text("not a trial")

    asked = submitted(
        "build", "--dataset", reference, "--aging", folder / pattern, *flags, "--id", "b1"
    )

    agings = asked["agings"]
    assert isinstance(agings, dict)
    assert list(agings) == ["FC"]
    assert [each["position"] for each in agings["FC"]] == [0.5]
    assert asked["id"] == "b1"


def test_positions_that_are_none_are_refused_with_what_they_should_be(
    tmp_path: Path, reference: Path
) -> None:
    words = ["build", "--dataset", str(reference), "--aging", str(tmp_path)]
    told = CliRunner().invoke(app, [*words, "--aging-positions", "Sommer:often", "--debug"])

    assert told.exit_code == 2
    assert "--aging-positions" in told.output


def test_all_kinds_have_the_flags_that_say_how() -> None:
    for kind in ("fake", "build", "predict"):
        told = CliRunner().invoke(app, [kind, "--help"], env={"COLUMNS": "160"})
        for flag in ("--url", "--id", "--priority", "--attempts", "--limit", "--detach", "--xml"):
            assert flag in told.output


def test_functions_have_arguments_of_json_or_text() -> None:
    words = ("reports:by_country", "2026", "all", "-k", "top=3", "-k", "name=x y", "--id", "s1")
    for kind in ("call", "spark"):
        asked = submitted(kind, *words)
        assert asked == {
            "type": kind, "id": "s1", "function": "reports:by_country", "arguments": [2026, "all"],
            "keywords": {"top": 3, "name": "x y"},
        }  # fmt: skip
    for wrong in (("no function",), ("a:b", "-k", "top")):
        told = CliRunner().invoke(app, ["spark", *wrong, "--debug"])
        assert told.exit_code != 0


class Connected:
    """A client that notes how it was opened and what was submitted, and has an answer."""

    def __init__(self, answer: JobResponse) -> None:
        self.answer = answer
        self.seen: dict[str, object] = {}

    def __call__(self, url: str, *, durability: Durability) -> Connected:
        self.seen |= {"url": url, "durability": durability}
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def submit(
        self, request: JobRequest, options: JobOptions, form: MessageFormat
    ) -> Connected:
        self.seen |= {"id": request.id, "options": options, "form": form}
        self.id = request.id
        return self

    async def __aiter__(self) -> AsyncIterator[JobResponse]:
        yield self.answer

    async def result(self, *, raises: bool) -> JobResponse:
        return self.answer


def connected(monkeypatch: pytest.MonkeyPatch, answer: JobResponse) -> Connected:
    client = Connected(answer)
    monkeypatch.setattr(penstock_jobs.client, "JobsClient", client)
    return client


@pytest.mark.parametrize(
    "command", ["fake:request", "build-models:request", "predict-models:request"]
)
def test_each_option_of_a_request_reaches_the_broker(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    client = connected(monkeypatch, JobResponse("a", "fake"))
    own = () if command.startswith("fake") else ("--fake", "1:1")
    words = (*own, "--id", "a", "--uri", "amqp://host", "--connection-type", "Qpid")
    words += ("--priority", "7", "--attempts", "2", "--limit", "1m", "--keep", "1d", "--detach")
    told = CliRunner().invoke(jobs, [command, *words])

    assert (told.exit_code, told.stdout) == (0, "a\n"), told.output
    assert client.seen == {
        "url": "amqp+1.0://host",
        "durability": Durability.ICHNAEA,
        "id": "a",
        "options": JobOptions(7, 2, 60.0, keep=86_400.0),
        "form": MessageFormat.XML,
    }
    told = CliRunner().invoke(jobs, [command, *own, "--json", "--durable"])
    assert client.seen["form"] is MessageFormat.JSON
    assert client.seen["durability"] is Durability.DURABLE


def test_a_prediction_as_text_is_read_as_that_of_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has the columns of the script, whatever else the response has."""
    table = {"FC": ("2.2e+06", ""), "CLASS": ("P6-HM01", "P6-CW02"), "PRED": ("1", "-1")}
    more = {"confidence": ("0.9", "0.8"), "decided by": ("FC, GA17", "FC, GA17")}
    confusion = {"-1": (1, 0), "1": (0, 1)}
    found = VoteResult("ERROR2", 2, 2, 0.0, {**table, **more}, confusion)
    connected(monkeypatch, JobResponse("p", "predict_models", results=(found,)))
    target = tmp_path / "cyprus_result.txt"
    words = ("predict-models:request", "--fake", "1:1", "--output", str(target))
    assert CliRunner().invoke(jobs, words).exit_code == 0

    [read] = read_predictions(target.read_text().splitlines())
    assert read == VoteResult("ERROR2", 2, 2, 0.0, table, confusion)


def test_the_name_of_the_output_tells_its_format(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = VoteResult("ERROR2", 1, 1, 0.0, {"CLASS": ("P6-HM01",), "PRED": ("1",)}, {
        "-1": (0, 0), "1": (0, 1),
    })  # fmt: skip
    connected(monkeypatch, JobResponse("p", "predict_models", results=(found,)))
    begins = {"xml": "<response", "json": "{", "csv": "CLASS;PRED\nP6-HM01;1", "txt": "Table:"}
    for suffix, start in begins.items():
        target = tmp_path / f"result.{suffix}"
        words = ("predict-models:request", "--fake", "1:1", "--output", str(target))
        told = CliRunner().invoke(jobs, words)
        assert told.exit_code == 0, told.output
        assert target.read_text().startswith(start)
    connected(monkeypatch, JobResponse("b", "build_models", models=b"PK"))
    words = ("build-models:request", "--fake", "1:1", "-o", str(tmp_path / "m.zip"))
    assert CliRunner().invoke(jobs, words).exit_code == 0
    assert (tmp_path / "m.zip").read_bytes() == b"PK"
    connected(monkeypatch, JobResponse("c", "call", value={"orders": 4}))
    words = ("submit", "call", "reports:monthly", "-o", str(tmp_path / "value.json"))
    assert CliRunner().invoke(jobs, words).exit_code == 0
    assert (tmp_path / "value.json").read_text() == '{"orders": 4}\n'
