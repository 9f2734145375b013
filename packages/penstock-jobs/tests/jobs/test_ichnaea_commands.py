"""The commands of the Ichnaea application: each option of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import penstock_jobs.commands.worker
from penstock_jobs.commands.job import app
from penstock_jobs.commands.options import broker_url
from penstock_jobs.commands.worker import script_command
from penstock_jobs.formats import read_request
from penstock_jobs.model import BuildModels, Fake, JobRequest, PredictModels
from penstock_jobs.queue.topology import Durability
from penstock_jobs.worker.factory import WorkerPlan

CSV = "CLASS;FRNAPH I;FTOTAL;pH\nP1-HM01;2,2E+07;1;7,1\n"
TRIAL = "# Estiu, a 18 graus\n0 5.0\n24 4.5\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "data.csv").write_text(CSV)
    (tmp_path / "models.zip").write_bytes(b"PK\x05\x06")
    (tmp_path / "aging").mkdir()
    for name in ("envFRNAPH.I-Estiu.txt", "envFRNAPH.I-Hivern.txt", "envBA-Estiu.txt"):
        (tmp_path / "aging" / name).write_text(TRIAL)
    return tmp_path


def sent(*words: object) -> tuple[JobRequest, str]:
    """The request that would be sent, and its text."""
    told = CliRunner().invoke(app, [*map(str, words), "--debug"])
    assert told.exit_code == 0, told.output
    return read_request(told.stdout.encode())[0], told.stdout


def test_a_fake_request_is_xml_with_its_times() -> None:
    request, text = sent("fake:request", "--duration=10", "--interval=2", "--id", "a")

    assert request == Fake("a", 10.0, 2.0)
    assert text.startswith("<request")
    assert json.loads(sent("fake:request", "--json")[1])["duration"] == 10.0


def test_a_build_request_has_all_columns_of_its_files(files: Path) -> None:
    pattern = f"{files}/aging/env%column%-%aging%.txt"
    request, text = sent(
        "build-models:request", "--dataset", files / "data.csv", "--aging", pattern
    )

    assert isinstance(request, BuildModels)
    assert text.startswith("<request")
    assert request.dataset["pH"] == ("7,1",)
    assert list(request.dataset) == ["CLASS", "FRNAPH.I", "FTOTAL", "pH"]
    assert {name: len(each) for name, each in request.agings.items()} == {"BA": 1, "FRNAPH.I": 2}


def test_seasons_with_other_names_have_positions(files: Path) -> None:
    (files / "aging" / "envFC-Sommer.txt").write_text(TRIAL)
    options = ("--aging", files / "aging", "--aging-positions", "Sommer:0.4,Estiu:0.6")
    request, _ = sent("build-models:request", "--dataset", files / "data.csv", *options)

    assert isinstance(request, BuildModels)
    assert [each.position for each in request.agings["FC"]] == [0.4]
    assert sorted(each.position or 0.0 for each in request.agings["FRNAPH.I"]) == [0.0, 0.6]


@pytest.mark.parametrize("command", ["build-models:request", "predict-models:request"])
def test_a_request_with_fake_only_takes_time(command: str) -> None:
    request, text = sent(command, "--fake", "10:1")

    assert isinstance(request, BuildModels | PredictModels)
    assert (request.duration, request.interval) == (10.0, 1.0)
    assert 'duration="10.0" interval="1.0"' in text
    for wrong in ("ten:1", "-1:1", "1:0"):
        refused = CliRunner().invoke(app, [command, "--fake", wrong, "--debug"])
        assert (refused.exit_code, "--fake" in refused.output) == (2, True)


def test_a_predict_request_has_data_and_models(files: Path) -> None:
    options = ("--dataset", files / "data.csv", "--data", files / "models.zip")
    request, text = sent("predict-models:request", *options)

    assert isinstance(request, PredictModels)
    assert text.startswith("--")
    assert request.models == b"PK\x05\x06"
    assert request.dataset["pH"] == ("7,1",)


DATASET = '<dataset><column name="CLASS"><value>a</value></column></dataset>'


@pytest.mark.parametrize(
    "text",
    [DATASET, f'<request id="1" type="build_models">{DATASET}</request>'],
    ids=["by itself", "in a request"],
)
def test_a_data_set_may_be_xml(files: Path, text: str) -> None:
    (files / "data.xml").write_text(text)
    options = ("--dataset", files / "data.xml", "--dataset-format", "Xml", "--data")
    request, _ = sent("predict-models:request", *options, files / "models.zip")

    assert isinstance(request, PredictModels)
    assert request.dataset == {"CLASS": ("a",)}
    (files / "other.xml").write_text('<request id="1" type="fake"/>')
    words = ["predict-models:request", "--dataset-format", "xml", "--debug"]
    wrong = CliRunner().invoke(app, [*words, "--dataset", str(files / "other.xml")])
    assert "other.xml: <request> in line 1: expected <dataset>" in str(wrong.exception)
    wrong = CliRunner().invoke(
        app,
        ["predict-models:request", "--dataset", str(files / "data.xml"), "--dataset-format", "Ods"],
    )
    assert (wrong.exit_code, "Csv or Xml" in wrong.output) == (2, True)


@pytest.mark.parametrize(
    ("command", "option"),
    [("build-models:request", "--dataset"), ("predict-models:request", "--dataset")],
)
def test_data_that_is_missing_is_told(command: str, option: str) -> None:
    refused = CliRunner().invoke(app, [command, "--debug"])

    assert (refused.exit_code, f"{option} is missing" in refused.output) == (2, True)


@pytest.mark.parametrize("kind", ["fake", "build-models", "predict-models"])
@pytest.mark.parametrize(
    ("words", "plan"),
    [
        ((), {"durability": Durability.ICHNAEA, "slots": 1}),
        (("--durable",), {"durability": Durability.DURABLE}),
        (("-i", "ichnaea.sh -x"), {"script": ("ichnaea.sh", "-x")}),
        (("--ichnaea-script", "a"), {"script": ("a",)}),
        (("--shell", "ssh://ada@host"), {"shell": "ssh://ada@host"}),
        (("--key", "k", "--key", "l"), {"keys": (Path("k"), Path("l"))}),
        (("--known-hosts", "file"), {"known_hosts": Path("file")}),
        (("--fork", "3"), {"slots": 3}),
        (("--request-queue", "mine"), {"request_queue": "mine"}),
        (("--response-queue", "a,b"), {"response_queues": ("a", "b")}),
    ],
)
def test_options_of_a_process_reach_its_worker(
    monkeypatch: pytest.MonkeyPatch, kind: str, words: tuple[str, ...], plan: dict[str, Any]
) -> None:
    made = planned(monkeypatch, f"{kind}:process", *words)[1]

    assert made.types == (kind.replace("-", "_"),)
    assert made.settings.retry_policy.attempts == 1
    assert {name: getattr(made, name) for name in plan} == plan


@pytest.mark.parametrize("kind", ["fake", "build-models", "predict-models"])
def test_a_process_responds_where_and_connects_how_it_is_told(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    words = ("--uri", "amqp://host", "--connection-type=Qpid", "--response-exchange", "there")
    url, made = planned(monkeypatch, f"{kind}:process", *words)

    assert (url, made.settings.response_exchange) == ("amqp+1.0://host", "there")
    assert broker_url("amqps://host", "qpid") == "amqps+1.0://host"
    assert broker_url("amqp://host", "RabbitMQ") == "amqp://host"


@pytest.mark.parametrize("kind", ["fake", "build-models", "predict-models"])
def test_the_history_of_a_process_is_in_its_database(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    databases.clear()
    planned(monkeypatch, f"{kind}:process", "--database", "postgresql://h/jobs")
    planned(monkeypatch, f"{kind}:process")
    assert databases == ["postgresql://h/jobs", None]


@pytest.mark.parametrize("kind", ["fake", "build-models", "predict-models"])
@pytest.mark.parametrize(("words", "level"), [((), "warning"), (("--verbose",), "info")])
def test_a_verbose_process_logs_more(
    monkeypatch: pytest.MonkeyPatch, kind: str, words: tuple[str, ...], level: str
) -> None:
    planned(monkeypatch, f"{kind}:process", *words)
    assert levels[-1] == level


def test_every_option_of_the_commands_is_tested() -> None:
    """In this file, or as an option of all requests in that of `submit`."""
    files = Path(__file__), Path(__file__).with_name("test_submit_command.py")
    text = "".join(file.read_text() for file in files)
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        for option in command.params if ":" in name else ():
            words = [*option.opts, *option.secondary_opts]
            assert any(f'"{word}' in text for word in words), f"{name} {words}"


databases: list[str | None] = []
levels: list[str] = []


def planned(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[str, WorkerPlan]:
    found: list[tuple[str, WorkerPlan]] = []

    async def run(url: str, plan: WorkerPlan, database: str | None, *_: object) -> None:
        found.append((url, plan))
        databases.append(database)

    monkeypatch.setattr(penstock_jobs.commands.worker, "_run", run)
    monkeypatch.setattr(
        penstock_jobs.commands.worker, "configure_logs", lambda logs: levels.append(logs.level)
    )
    told = CliRunner().invoke(app, list(words))
    assert told.exit_code == 0, told.output
    return found[0]


def test_retries_and_rates_are_set_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--retry", "call=5:2s:10m", "--retry", "build-models=1", "--rate", "command=30/m")
    settings = planned(monkeypatch, "worker", *words)[1].settings

    assert settings.rates == {"command": 0.5}
    policy = settings.retry_policies["call"]
    assert (policy.attempts, policy.first, policy.longest) == (5, 2, 600)
    assert settings.retry_policies["build_models"].attempts == 1
    for wrong in (("--retry", "call=0"), ("--retry", "5"), ("--rate", "x=1"), ("--rate", "x=0/s")):
        refused = CliRunner().invoke(app, ["worker", *wrong])
        assert (refused.exit_code, wrong[0] in refused.output) == (2, True)


def test_a_local_script_is_found_from_the_folders_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert script_command("./ichnaea.sh --debug", "") == (f"{tmp_path}/ichnaea.sh", "--debug")
    assert script_command("penstock science", "") == ("penstock", "science")
    assert script_command("./ichnaea.sh", "ssh://me@host") == ("./ichnaea.sh",)
