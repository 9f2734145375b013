"""The Ichnaea commands with all their options at once, over both protocols.

A script of that time runs on a machine that is reached by SSH, and requests come from the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from typer.testing import CliRunner, Result

import penstock_jobs.commands.submit
from penstock_jobs.commands.job import app
from penstock_jobs.formats import read_response
from penstock_jobs.history.repository import JobRepository
from penstock_store import Database
from tests.databases import copy_of
from tests.fixtures import needed, running
from tests.integration.jobs.running import WorkerProcess, clean
from tests.integration.jobs.test_chapter4 import new_id
from tests.integration.jobs.test_ichnaea import wait_for
from tests.peers import Broker
from tests.sshd import Sshd

KINDS = ("fake", "build-models", "predict-models")
#: A fake ends when two run at the same time.
SCRIPT = """#!/bin/sh
for word; do
  case $word in --aging=*) aging=${word#*=} ;; --models=*) models=${word#*=} ;; esac
  last=$word
done
case " $* " in
*" fake "*)
  : > "FOLDER/running/$$"
  until test "$(ls "FOLDER/running" | wc -l)" -ge 2; do sleep 0.05; done
  echo "percent: 50%"; echo "finish: $(date)"; echo "$last from ${SSH_CONNECTION%% *}" ;;
*" build "*) { cat "$last"; ls "$aging"; } > "$models" ;;
*" predict "*)
  test "$(head -c 2 "$models")" = PK || exit 1
  echo "***New sample, # 1 / 1"; echo "Table:"; echo "  CLASS     FC PRED"
  sed -n 's/^\\(.*\\);\\(.*\\);.*/1 \\1 \\2    1/p' "$last" | tail -1
  echo "Summary:"; echo "cyprus_test-ERROR2: 1/1, 0 0 0 1, 0%" ;;
esac
"""
CSV = "CLASS;FC;pH\nP1-HM01;2,2E+07;7,1\n"
XML = """<dataset>
  <column name="CLASS"><value>P1-HM01</value></column>
  <column name="FC"><value>2,2E+07</value></column>
  <column name="pH"><value>7,1</value></column>
</dataset>
"""
TRIAL = "0 5.0\n24 4.5\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "running").mkdir()
    script = tmp_path / "ichnaea.sh"
    script.write_text(SCRIPT.replace("FOLDER", str(tmp_path)))
    script.chmod(0o755)
    (tmp_path / "data.csv").write_text(CSV)
    (tmp_path / "data.xml").write_text(XML)
    (tmp_path / "models.zip").write_bytes(b"PK\x05\x06")
    (tmp_path / "aging").mkdir()
    for name in ("envFRNAPH.I-Sommer.txt", "envBA-Sommer.txt", "envBA-Kalt.txt"):
        (tmp_path / "aging" / name).write_text(TRIAL)
    return tmp_path


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with running(needed(Sshd, tmp_path / "sshd")) as server:
        yield server


_ALSO = [pytest.mark.peer, pytest.mark.slow]


@pytest.mark.parametrize(
    ("server", "connection_type", "durability"),
    [
        ("penstock", "RabbitMQ", "--compatible"),
        ("penstock", "Qpid", "--compatible"),
        pytest.param("penstock", "RabbitMQ", "--durable", marks=pytest.mark.slow),
        pytest.param("penstock", "Qpid", "--durable", marks=pytest.mark.slow),
        pytest.param("rabbitmq", "RabbitMQ", "--compatible", marks=_ALSO),
        # It refuses transient queues from 4.3 on.
        pytest.param("new_rabbitmq", "RabbitMQ", "--durable", marks=_ALSO),
        pytest.param("new_rabbitmq", "Qpid", "--durable", marks=_ALSO),
    ],
)
def test_all_options_work_together(
    request: pytest.FixtureRequest,
    embedded_template: str,
    files: Path,
    sshd: Sshd,
    server: str,
    connection_type: str,
    durability: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker: Broker = request.getfixturevalue(server)
    monkeypatch.setattr(penstock_jobs.commands.submit, "log_warnings_plainly", lambda: None)
    clean(broker.url)
    connecting = ("--connection-type", connection_type, durability)

    def ask(kind: str, *words: object) -> Result:
        given = (f"{kind}:request", *words, "--uri", broker.url, *connecting)
        return CliRunner().invoke(app, [*map(str, given)])

    with (
        copy_of(embedded_template) as url,
        Database(url) as database,
        ExitStack() as started,
    ):
        workers = [
            WorkerProcess(
                *(broker.url, files, f"{kind}:process", *connecting),
                *("-i", str(files / "ichnaea.sh"), "--fork", "2", "--verbose"),
                *("--shell", sshd.url, "--key", str(sshd.key)),
                *("--known-hosts", str(sshd.known_hosts), "--database", url),
                *("--request-queue", f"site.{kind}", "--response-queue", "site.a,site.b"),
                *("--response-exchange", "site.responses"),
            )
            for kind in KINDS
        ]
        for worker in workers:
            started.callback(worker.kill)  # if the test fails
            worker.ready()
        names = {kind: new_id(kind) for kind in ("first", *KINDS)}
        times = ("--duration", 10, "--interval", 2)
        first = ask("fake", *times, "--id", names["first"], "--detach")
        assert (first.exit_code, first.stdout) == (0, f"{names['first']}\n"), first.output
        told = ask("fake", *times, "--id", names["fake"], "--priority", 9, "--limit", "1m")
        assert (told.exit_code, told.stdout) == (0, f"{names['fake']}: done\n"), told.output
        told = ask(
            *("build-models", "--dataset", files / "data.csv", "--id", names["build-models"]),
            *("--aging", files / "aging/env%column%-%aging%.txt"),
            *("--aging-positions", "Sommer:0.5,Kalt:0", "--output", files / "built.zip"),
        )
        assert told.exit_code == 0, told.output
        told = ask(
            *("predict-models", "--dataset", files / "data.xml", "--dataset-format", "Xml"),
            *("--id", names["predict-models"], "--data", files / "models.zip"),
            *("--output", files / "cyprus_result.txt"),
        )
        assert told.exit_code == 0, told.output
        for name in names.values():
            wait_for(JobRepository(database), name)
        assert [worker.stop() for worker in workers] == [0, 0, 0]

    assert (files / "built.zip").read_text() == (
        f"{CSV}envBA-Estiu.txt\nenvBA-Hivern.txt\nenvFRNAPH.I-Estiu.txt\n"
    )
    printed = (files / "cyprus_result.txt").read_text()
    assert "1 P1-HM01 2,2E+07    1\n" in printed
    assert printed.endswith("-ERROR2: 1/1, 0 0 0 1, 0%\n")
    assert "10:2 from 127.0.0.1" in workers[0].log
    for queue in ("site.a", "site.b"):
        assert finals(broker.url, queue) == set(names.values())
    clean_site(broker.url)


def finals(url: str, queue: str) -> set[str]:
    """The ids of the jobs whose end a site was told, each once."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    found: set[str] = set()
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        response = read_response(got[2])[0]
        if response.final:
            assert response.id not in found
            found.add(response.id)
    connection.close()
    return found


def clean_site(url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for queue in ("site.a", "site.b", *(f"site.{kind}" for kind in KINDS)):
        channel.queue_delete(queue)
    channel.exchange_delete("site.responses")
    connection.close()
    clean(url)
