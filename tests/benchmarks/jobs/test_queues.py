"""Every queue does all that it is sent, once; nothing is said about time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks.errors import WrongDelivery
from benchmarks.harness import rounds
from benchmarks.jobs import measuring, stamps
from benchmarks.jobs.queues import QUEUES, URL
from benchmarks.peers import AMQP_STARTERS, Peer

JOBS = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Peer]:
    """Which one is all the same to whether each job is done, and this one starts in a second."""
    with rounds.running(AMQP_STARTERS["penstock"]) as running:
        # Where the clients of the others look when they are loaded, which is once.
        os.environ[URL] = f"amqp://guest:guest@127.0.0.1:{running.port}"
        yield running
        del os.environ[URL]


@pytest.mark.parametrize(
    "name", ["penstock", "dramatiq", "taskiq", pytest.param("celery", marks=pytest.mark.slow)]
)
def test_a_backlog_is_worked_off_each_job_once(name: str, broker: Peer) -> None:
    run = measuring.drain(QUEUES[name], broker, os.environ[URL], JOBS)

    assert (run.queue, run.broker, run.jobs) == (name, "penstock", JOBS)
    assert run.rate > 0


def test_the_start_of_jobs_is_timed(broker: Peer) -> None:
    run = measuring.latency(QUEUES["penstock"], broker, os.environ[URL], JOBS)

    assert 0 < run.p50 <= run.p99


def test_a_job_that_ran_twice_is_no_figure() -> None:
    found = [stamps.Stamp(number, 0, 1) for number in (0, 1, 1)]
    with pytest.raises(WrongDelivery, match="3 ran, 2 different"):
        measuring.each_once("penstock", found, 3)
