"""`penstock job submit`: what its flags make of files, as `--debug` shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock_jobs.commands.submit import app
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
