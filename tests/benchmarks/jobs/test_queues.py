"""Every queue does all that it is sent, once; nothing is said about time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks.errors import WrongDelivery
from benchmarks.harness import rounds
from benchmarks.jobs import measuring, stamps
from benchmarks.jobs.queues import QUEUES, URL
from benchmarks.peers import AMQP_STARTERS, Peer, available

JOBS = 60


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[Peer]:
    if not available("rabbitmq") and os.environ.get("CI") != "true":
        pytest.skip("rabbitmq is not installed here")
    with rounds.running(AMQP_STARTERS["rabbitmq"]) as running:
        # Where the clients of the others look when they are loaded, which is once.
        os.environ[URL] = f"amqp://guest:guest@127.0.0.1:{running.port}"
        yield running
        del os.environ[URL]


@pytest.mark.peer
@pytest.mark.parametrize("name", QUEUES)
def test_a_backlog_is_worked_off_each_job_once(name: str, rabbitmq: Peer) -> None:
    run = measuring.drain(QUEUES[name], rabbitmq, os.environ[URL], JOBS)

    assert (run.queue, run.broker, run.jobs) == (name, "rabbitmq", JOBS)
    assert run.rate > 0


@pytest.mark.peer
def test_the_start_of_jobs_is_timed(rabbitmq: Peer) -> None:
    run = measuring.latency(QUEUES["penstock"], rabbitmq, os.environ[URL], JOBS)

    assert 0 < run.p50 <= run.p99


def test_a_job_that_ran_twice_is_no_figure() -> None:
    found = [stamps.Stamp(number, 0, 1) for number in (0, 1, 1)]
    with pytest.raises(WrongDelivery, match="3 ran, 2 different"):
        measuring.each_once(QUEUES["penstock"], found, 3)
