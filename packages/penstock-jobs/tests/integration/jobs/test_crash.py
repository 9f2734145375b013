"""Workers that are killed and brokers that restart: each job ends with one final response.

The responses stay in their durable queue until everything is over and are counted then, so that
what is counted is what was published.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pika
import pytest

from penstock_jobs.formats import read_response
from tests.fixtures import needed
from tests.integration.jobs.running import PATIENCE, WorkerProcess, clean
from tests.peers import Broker, Penstock, RabbitMQ
from tests.rabbitmq_cluster import RabbitMQCluster

REQUESTS = "ichnaea.fake.request"
RESPONSES = "ichnaea.fake.response"


def ask(url: str, count: int, duration: float) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    said = pika.BasicProperties(content_type="text/xml", delivery_mode=2, reply_to="crash")
    for number in range(count):
        body = f'<request id="k{number}" type="fake" duration="{duration}" interval="1"/>'
        channel.basic_publish("ichnaea.fake.request", "", body.encode(), said, mandatory=True)
    connection.close()


def waiting(url: str) -> int:
    """Requests that no worker has."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    found = connection.channel().queue_declare(REQUESTS, passive=True)
    connection.close()
    return int(found.method.message_count)


def await_waiting(url: str, most: int) -> None:
    """Until no more than so many wait: a queue tells nobody when it gets shorter."""
    deadline = time.monotonic() + 5 * PATIENCE
    while waiting(url) > most:
        assert time.monotonic() < deadline, "the workers do not get on"
        time.sleep(0.05)


def finals(url: str) -> Counter[str]:
    """The final responses there are, each once for each time it was sent."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    found: Counter[str] = Counter()
    while True:
        method, _, body = channel.basic_get(RESPONSES, auto_ack=True)
        if method is None:
            break
        response = read_response(body)[0]
        assert response.error is None
        found[response.id] += response.final
    connection.close()
    return found


class Crew:
    """Two workers, of which one is killed now and then; another takes its place."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._workers = [self._hire() for _ in range(2)]
        for worker in self._workers:
            worker.ready()

    def _hire(self) -> WorkerProcess:
        options = ("--type", "fake", "--fork", "4", "--retry-seconds", "60")
        return WorkerProcess(self._url, self._folder, "worker", *options)

    def kill(self, which: int) -> None:
        self._workers[which].kill()
        self._workers[which] = self._hire()

    def stop(self) -> None:
        """Each finishes what it has."""
        for worker in self._workers:
            worker.ready()
            assert worker.stop() == 0, worker.log


def crash_course(
    broker: Broker, folder: Path, jobs: int, kills: int, restarts: int, duration: float
) -> Counter[str]:
    """Kills and restarts spread over the jobs; the final responses."""
    chance = random.Random(jobs)
    crew = Crew(broker.url, folder)
    ask(broker.url, jobs, duration)
    restart_after = {kills * (n + 1) // (restarts + 1) for n in range(restarts)}
    for number in range(1, kills + 1):
        await_waiting(broker.url, jobs - jobs * number // (kills + 2))
        crew.kill(chance.randrange(2))
        if number in restart_after:
            broker.stop()
            broker.start()
    await_waiting(broker.url, 0)
    crew.stop()
    assert waiting(broker.url) == 0
    return finals(broker.url)


_PEER: Final = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture(
    params=[
        Penstock,
        pytest.param(RabbitMQ, marks=_PEER),
        pytest.param(RabbitMQCluster, marks=_PEER),
    ],
    ids=["penstock", "rabbitmq", "rabbitmq-cluster"],
)
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    if request.param is RabbitMQCluster:  # a restart is that of one node, in turn
        with needed(RabbitMQCluster, tmp_path / "broker") as cluster:
            clean(cluster.url)
            yield cluster
        return
    server: Broker = needed(request.param, tmp_path / "broker")
    server.start()
    clean(server.url)
    yield server
    server.kill()


@pytest.mark.timeout(300)
def test_each_job_ends_once_although_workers_are_killed(own_broker: Broker, tmp_path: Path) -> None:
    nodes = 3 if isinstance(own_broker, RabbitMQCluster) else 1
    found = crash_course(
        own_broker, tmp_path, jobs=40, kills=nodes + 1, restarts=nodes, duration=0.2
    )

    assert found == Counter({f"k{number}": 1 for number in range(40)})


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_jobs_twenty_kills_two_restarts(own_broker: Broker, tmp_path: Path) -> None:
    found = crash_course(own_broker, tmp_path, jobs=1_000, kills=20, restarts=2, duration=0.2)

    assert found == Counter({f"k{number}": 1 for number in range(1_000)})
