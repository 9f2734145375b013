"""`penstock job`: a worker, requests and a look at what became of them, from the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import penstock_jobs.commands.job
import penstock_jobs.commands.submit
from penstock.cli import app
from tests.databases import copy_of
from tests.integration.jobs.running import PATIENCE, SAMPLES, WorkerProcess, clean
from tests.peers import Penstock


def new_id(stem: str) -> str:
    """A worker remembers what it has answered: one that is used again is not answered again."""
    return f"{stem}-{uuid.uuid4().hex[:8]}"


def here(*arguments: str) -> Result:
    """In this process, which has loaded everything."""
    return CliRunner().invoke(app, ["job", *arguments])


@pytest.fixture(autouse=True)
def logs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command decides how its process writes logs; this process is pytest's."""
    for module in (penstock_jobs.commands.job, penstock_jobs.commands.submit):
        monkeypatch.setattr(module, "log_warnings_plainly", lambda: None)


def job(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "job", *arguments],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.fixture(scope="module")
def database(embedded_template: str) -> Iterator[str]:
    with copy_of(embedded_template) as url:
        yield url


@pytest.fixture(scope="module")
def worker(
    penstock: Penstock, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    clean(penstock.url)
    allowed = ("--allow", SAMPLES, "--program", "/bin/sh")
    options = ("--database", database, *allowed, "--attempts", "1", "--metrics", "0")
    process = WorkerProcess(penstock.url, tmp_path_factory.mktemp("worker"), "worker", *options)
    yield process.ready()
    process.stop()
    clean(penstock.url)


def test_a_request_is_followed_to_its_end_and_is_in_the_history(
    worker: WorkerProcess, penstock: Penstock, database: str
) -> None:
    name = new_id("cli")
    asked = ("submit", "fake", "--duration", "0.2", "--interval", "0.1", "--id", name)
    submitted = job(*asked, "--url", penstock.url)

    assert (submitted.returncode, submitted.stdout) == (0, f"{name}: done\n")
    shown = here("show", name, "--database", database)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(f"{name}  fake  ")
    listed = here("list", "--database", database, "--type", "fake")
    assert f"{name}  fake" in listed.stdout


def test_a_job_that_fails_is_shown_with_the_dead_and_asked_for_again(
    worker: WorkerProcess, penstock: Penstock, tmp_path: Path
) -> None:
    name = new_id("dead")
    data = tmp_path / "data.csv"
    data.write_text("CLASS;FC\nP1-HM1;1\n")
    asked = ("submit", "predict", "--dataset", str(data), "--data", str(data), "--id", name)
    failed = here(*asked, "--url", penstock.url)

    assert failed.exit_code == 1
    assert "not a readable zip" in failed.stderr
    assert (
        f"{name}  predict_models  not a readable zip" in here("dead", "--url", penstock.url).stdout
    )
    again = here("retry", name, "elsewhere", "--url", penstock.url)
    assert again.stdout == f"{name}: submitted again\n"
    assert (again.exit_code, again.stderr) == (3, "elsewhere: no dead letter with this id\n")


SAYS = "cat data; echo more >&2; test $0 = well || exit 3"


@pytest.mark.parametrize("scheme", ["amqp", "amqp+1.0"])
def test_a_command_prints_where_it_was_asked_for_and_in_the_history(
    worker: WorkerProcess, penstock: Penstock, database: str, tmp_path: Path, scheme: str
) -> None:
    name, url = new_id("command"), penstock.url.replace("amqp", scheme, 1)
    (tmp_path / "said").write_text("something\n")
    asked = ("submit", "command", "--url", url, "--id", name, "--file", f"data={tmp_path}/said")
    done = here(*asked, "-o", str(tmp_path / "out"), "--", "/bin/sh", "-c", SAYS, "well")

    assert (done.exit_code, sorted(done.stdout.splitlines())) == (0, ["more", "something"])
    assert (tmp_path / "out").read_text() == "something\n"
    wait_for_end(name, database)
    assert "something\n" in here("output", name, "--database", database).stdout
    again = here("result", name, "--database", database, "-o", str(tmp_path / "again"))
    assert (again.exit_code, (tmp_path / "again").read_text()) == (0, "something\n")
    assert here("result", "none", "--database", database).exit_code != 0


def test_a_command_that_fails_fails_where_it_was_asked_for(
    worker: WorkerProcess, penstock: Penstock, tmp_path: Path
) -> None:
    asked = ("submit", "command", "--url", penstock.url, "--")
    failed = here(*asked, "/bin/sh", "-c", "echo before; exit 3")
    refused = here(*asked, "/bin/ls")

    assert (failed.exit_code, failed.stdout) == (1, "before\n")
    assert "status 3" in failed.stderr
    assert (refused.exit_code, "not allowed" in refused.stderr) == (1, True)


def test_a_function_is_called_with_json_or_text(worker: WorkerProcess, penstock: Penstock) -> None:
    asked = ("submit", "call", "--url", penstock.url, f"{SAMPLES}:say")
    done = here(*asked, "[1, 2]", "plain", "-k", 'more={"a": null}')

    assert done.exit_code == 0, done.output
    assert done.stdout == 'said\n[[1, 2], "plain", {"a": null}]\n'
    assert here("submit", "call", "no function").exit_code != 0


def wait_for_end(name: str, database: str) -> None:
    """The history is told at the same time as the client."""
    deadline = time.monotonic() + PATIENCE
    while "  done  " not in here("show", name, "--database", database).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_would_be_sent_can_be_seen() -> None:
    shown = here("fake:request", "--duration", "3", "--id", "x", "--debug")

    assert shown.stdout == '<request id="x" type="fake" duration="3.0" interval="1.0"/>\n'


def test_figures_of_a_worker_are_served(worker: WorkerProcess) -> None:
    from urllib.request import urlopen

    found = re.search(r"http://127.0.0.1:\d+/metrics", worker.log)
    assert found is not None
    with urlopen(found[0], timeout=PATIENCE) as answer:
        assert b"penstock_jobs_done_total" in answer.read()


def test_a_broker_that_is_not_there_is_told(tmp_path: Path) -> None:
    lost = job("submit", "fake", "--url", "amqp://127.0.0.1:1")

    assert lost.returncode == 6
    assert "connection refused" in lost.stderr


def test_work_that_nothing_is_allowed_for_is_refused_at_once(penstock: Penstock) -> None:
    refused = job("worker", "--type", "call", "--url", penstock.url)

    assert refused.returncode == 2
    assert "--allow" in refused.stderr
