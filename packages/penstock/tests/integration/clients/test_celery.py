"""Celery with the broker under it: workers and beat as processes of their own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.integration.clients import celery_app
from tests.paths import ROOT
from tests.peers import Broker, Process

PATIENCE = 60


class HasUrl(Protocol):
    @property
    def url(self) -> str: ...


class Deployment:
    """One application's queue and journal, and the processes that work on them."""

    def __init__(self, broker: HasUrl, folder: Path, queue: str) -> None:
        self.journal = folder / "journal"
        self.journal.touch()
        self._folder = folder
        self._queue = queue
        self._url = broker.url
        self._processes: list[Process] = []
        self.client = celery_app.new_application(broker.url, queue)

    def start(self, *arguments: str) -> Process:
        process = Process(
            [sys.executable, "-m", "celery", "-A", celery_app.__name__, *arguments],
            self._folder / f"celery-{len(self._processes)}.log",
            {
                **os.environ,
                "PYTHONPATH": f"{ROOT}:{ROOT / 'packages' / 'penstock'}",
                "BROKER_URL": self._url,
                "QUEUE": self._queue,
                "JOURNAL": str(self.journal),
            },
        )
        self._processes.append(process)
        return process

    def start_worker(self, *arguments: str) -> Process:
        number = len(self._processes)
        worker = self.start(
            *("worker", "--pool", "prefork", "--concurrency", "1", "--loglevel", "INFO"),
            *("--hostname", f"worker{number}@{self._queue}", *arguments),
        )
        self._wait(lambda: " ready." in worker.output(), worker)
        return worker

    def send(self, task: str, *arguments: Any, **options: Any) -> Any:
        return self.client.send_task(
            f"tests.{task}",
            args=arguments,
            **options,
        )

    def journal_lines(self) -> list[str]:
        return self.journal.read_text().splitlines()

    def wait_for_lines(self, count: int) -> list[str]:
        self._wait(lambda: len(self.journal_lines()) >= count, *self._processes)
        return self.journal_lines()

    def _wait(self, condition: Callable[[], bool], *processes: Process) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            told = "\n".join(process.output()[-2000:] for process in processes)
            assert time.monotonic() < deadline, told
            time.sleep(0.05)

    def close(self) -> None:
        for process in self._processes:
            process.end_group(signal.SIGKILL)


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path, name: str) -> Iterator[Deployment]:
    deployment = Deployment(broker, tmp_path, name)
    yield deployment
    deployment.close()
    with deployment.client.connection() as connection:
        queue = celery_app.task_queue(name)(connection)
        queue.delete()
        queue.exchange(connection).delete()
    deployment.client.close()


@pytest.fixture
def worker(deployment: Deployment) -> Process:
    return deployment.start_worker()


def test_a_result_comes_back_by_rpc(deployment: Deployment, worker: Process) -> None:
    results = [deployment.send("add", number, number) for number in range(10)]

    assert [result.get(timeout=PATIENCE) for result in results] == [2 * n for n in range(10)]


def test_a_failed_task_fails_here_too(deployment: Deployment, worker: Process) -> None:
    result = deployment.send("wrong")

    with pytest.raises(ValueError, match="on purpose"):
        result.get(timeout=PATIENCE)


def test_a_task_is_retried_until_it_works(deployment: Deployment, worker: Process) -> None:
    assert deployment.send("flaky", 3).get(timeout=PATIENCE) == 3


def test_a_countdown_holds_a_task_back(deployment: Deployment, worker: Process) -> None:
    sent = time.time()

    ran = deployment.send("when", countdown=1.5).get(timeout=PATIENCE)

    assert ran - sent >= 1.4


def test_a_countdown_does_not_hold_others_back(deployment: Deployment, worker: Process) -> None:
    deployment.send("note_down", "later", countdown=1.5)
    deployment.send("note_down", "now")

    assert deployment.wait_for_lines(2) == ["now", "later"]


def test_urgent_tasks_run_first(deployment: Deployment) -> None:
    for line, priority in [("low", 1), ("high", 9), ("middle", 5), ("higher", 10)]:
        deployment.send("note_down", line, priority=priority)

    deployment.start_worker()

    assert deployment.wait_for_lines(4) == ["higher", "high", "middle", "low"]


def test_beat_sends_tasks_on_schedule(deployment: Deployment, worker: Process) -> None:
    schedule = deployment.journal.with_name("schedule")

    deployment.start("beat", "--schedule", str(schedule), "--max-interval", "1")

    assert set(deployment.wait_for_lines(3)) == {"tick"}


def test_a_task_of_a_killed_worker_is_done_by_another(deployment: Deployment) -> None:
    first = deployment.start_worker()
    may_end = deployment.journal.with_name("may-end")
    result = deployment.send("hold", str(may_end))
    deployment.wait_for_lines(1)

    first.end_group(signal.SIGKILL)
    deployment.start_worker()
    deployment.wait_for_lines(2)
    may_end.touch()

    assert result.get(timeout=PATIENCE) is True


def test_workers_answer_a_broadcast(deployment: Deployment, worker: Process) -> None:
    answers = deployment.client.control.broadcast("ping", reply=True, timeout=PATIENCE, limit=1)

    assert [list(answer.values()) for answer in answers] == [[{"ok": "pong"}]]


def test_a_worker_asked_to_stop_finishes_its_task(deployment: Deployment, worker: Process) -> None:
    may_end = deployment.journal.with_name("may-end")
    result = deployment.send("hold", str(may_end))
    deployment.wait_for_lines(1)

    os.kill(worker.pid, signal.SIGTERM)
    may_end.touch()

    assert result.get(timeout=PATIENCE) is False
    assert worker.end(signal.SIGTERM) == 0
