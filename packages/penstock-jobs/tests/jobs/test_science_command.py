"""`penstock science`: arguments and lines of the script that it stands in for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock_jobs.executors.commands import CommandProgress
from penstock_jobs.science import model_file
from penstock_jobs.science.model import SourceModel
from penstock_jobs.science.prediction import SourcePredictor
from tests.jobs.science.conftest import matrix, model, samples, slopes

__all__ = ["matrix", "model", "samples", "slopes"]


def run(*arguments: object) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["science", *map(str, arguments)])
    return done.exit_code, done.output.splitlines()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    assert run("synthesize", tmp_path, "--seed", 1)[0] == 0
    return tmp_path


def test_data_to_try_it_with_are_the_same_for_the_same_seed(data: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert run("synthesize", again, "--seed", 1)[0] == 0
    assert (again / "reference.csv").read_bytes() == (data / "reference.csv").read_bytes()
    names = sorted(path.name for path in (data / "aging").iterdir())
    assert len(names) == 26
    assert names[:2] == ["envCL-Estiu.txt", "envCL-Hivern.txt"]
    assert "envFRNAPH.I-Estiu.txt" in names


def test_predict_prints_what_the_original_prints(data: Path, model: SourceModel) -> None:
    models = data / "models.zip"
    models.write_bytes(model_file.save_model(model))
    status, printed = run(f"--models={models}", "predict", data / "samples.csv")
    assert status == 0
    announced = [line for line in printed if line.startswith("***")]
    assert announced == [f"***New sample, # {number} / 15" for number in range(1, 16)]
    assert printed.count("Table:") == 3
    assert [line.split(":")[0] for line in printed if line.startswith("samples-")] == [
        "samples-MAJORITY_VOTE",
        "samples-ERROR",
        "samples-ERROR2",
    ]


def test_a_sample_is_announced_when_those_before_it_are_predicted(
    data: Path, model: SourceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = data / "models.zip"
    models.write_bytes(model_file.save_model(model))
    original, at = SourcePredictor.predict, iter(range(1, 16))

    def predict(*arguments: Any) -> Any:
        print(f"predicts {next(at)}")
        return original(*arguments)

    monkeypatch.setattr(SourcePredictor, "predict", predict)
    _, printed = run(f"--models={models}", "predict", data / "samples.csv")
    expected = [
        text
        for number in range(1, 16)
        for text in (f"***New sample, # {number} / 15", f"predicts {number}")
    ]
    assert printed[:30] == expected


def test_predict_explains_itself_if_asked(data: Path, model: SourceModel) -> None:
    models = data / "models.zip"
    models.write_bytes(model_file.save_model(model))
    _, printed = run(f"--models={models}", "predict", data / "samples.csv", "--explain")
    at = printed.index("Explained:")
    assert printed[at + 1].split()[:4] == ["origin", "confidence", "hours", "dilution"]
    assert printed[at + 2].startswith("P6-HM01")


def test_fake_tells_how_much_time_has_gone() -> None:
    status, printed = run("fake", "0.2:0.1")
    assert status == 0
    progress = [
        CommandProgress().after(line).share for line in printed if line.startswith("percent")
    ]
    assert progress[-1] == 1.0
    assert progress == sorted(progress)
    assert CommandProgress().after(printed[-1]).finish is not None


def test_fake_knows_from_the_first_line_when_it_will_end() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    _, printed = run("fake", "2:2")
    first = next(line for line in printed if line.startswith("finish"))
    finish = CommandProgress().after(first).finish
    assert finish is not None
    assert before + timedelta(seconds=2) <= finish <= datetime.now(UTC)


@pytest.mark.parametrize("span", ["x", "1", "1:0", "-1:1", "1:2:3"])
def test_fake_wants_a_duration_and_an_interval(span: str) -> None:
    assert run("fake", "--", span)[0] != 0


def test_install_has_nothing_to_do() -> None:
    assert run("install") == (0, [])


def test_what_is_missing_is_named(data: Path) -> None:
    assert "--models is missing" in " ".join(run("predict", data / "samples.csv")[1])
    status, printed = run(f"--models={data / 'none.zip'}", "predict", data / "samples.csv")
    assert status != 0
    assert "none.zip: No such file" in " ".join(printed)


def test_a_cell_that_cannot_be_read_is_named(data: Path) -> None:
    wrong = (data / "reference.csv").read_text().replace(";", ";x", 27 * 3)
    (data / "wrong.csv").write_text(wrong.replace("CLASS;x", "CLASS;").replace(";x", ";", 26))
    status, printed = run(
        f"--aging={data / 'aging'}", f"--models={data / 'm.zip'}", "build", data / "wrong.csv"
    )
    assert status != 0
    assert "row 2, column FC: 'x" in " ".join(printed)


@pytest.mark.slow
def test_build_writes_models_and_tells_how_far_it_is(data: Path) -> None:
    """All thirty configurations: a minute of both cores."""
    models = data / "models.zip"
    status, printed = run(
        f"--aging={data / 'aging'}", f"--models={models}", "build", data / "reference.csv"
    )
    assert status == 0, printed
    assert "percent: 100.0%" in printed
    built = model_file.load_model(models.read_bytes())
    assert [len(bag) for bag in built.bags.values()] == [750]


def test_methods_are_validated_beside_what_costs_nothing(data: Path) -> None:
    words = ("validate", data / "reference.csv", "--samples", 200, "--methods", "lda")
    status, lines = run(f"--aging={data / 'aging'}", *words, "--no-boosted")

    assert status == 0
    assert lines[0].split()[:2] == ["coverage", "error"]
    found = {line[:16].strip(): line[16:].split() for line in lines[1:]}
    assert list(found) == [
        "vote of models",
        "calibrated vote",
        "no correction",
        "always human",
    ]
    assert found["always human"][0] == "100.0%"
    errors = {name: float(cells[1].rstrip("%")) for name, cells in found.items()}
    assert errors["vote of models"] < errors["always human"]


def test_a_method_that_is_none_is_named(data: Path) -> None:
    words = ("validate", data / "reference.csv", "--methods", "lda,crystal")
    status, lines = run(f"--aging={data / 'aging'}", *words)

    assert status == 2
    assert "crystal" in "\n".join(lines)
