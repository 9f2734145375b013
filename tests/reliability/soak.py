"""A soak: connections, queues, bindings, sessions, jobs and files come and go, for hours.

A broker, a job worker, and a watcher and a subscriber of files run meanwhile. Their memory and
descriptors, and the disk that the broker takes, are sampled; at the end they are as they were after
the first quarter, which is left to warm up.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import pika

from penstock_jobs.client import BlockingJobsClient
from penstock_jobs.model import Fake
from penstock_jobs.queue.topology import response_name
from tests.integration.mqtt.clients_paho import Paho
from tests.peers import Penstock, Process, resident_bytes
from tests.reliability.records import Records

MIB: Final = 1 << 20
PATIENCE: Final = 300.0
CONNECTIONS: Final = 10
MESSAGES: Final = 20
#: What counts as flat: growth in the second half, as a share, and beside that.
GROWTH: Final = 0.05
SLACK: Final = {"resident_mb": 2.0, "descriptors": 3.0, "disk_mb": 8.0}


class Soak:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = Penstock(folder, mqtt=True)
        self._there, self._here = folder / "there", folder / "here"
        self._processes: dict[str, int] = {}
        self._numbers = itertools.count()
        self.samples: list[dict[str, Any]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            self._broker.start()
            stack.callback(self._broker.stop)
            self._processes["broker"] = self._broker.pid
            for folder in (self._there, self._here):
                folder.mkdir()
            url, state = self._broker.url, self._folder / "state"
            self._start(stack, "worker", "job", "worker", "--url", url, "--fork", "2")
            self._start(
                *(stack, "subscribe", "pump", "subscribe", "--broker", url, "--exchange", "xsoak"),
                *("--directory", str(self._here), "--file-directories", str(self._there)),
                *("--state", str(state / "subscribe")),
            )
            self._start(
                *(stack, "watch", "pump", "watch", "--broker", url, "--post-exchange", "xsoak"),
                *("--base-url", "file:", "--state", str(state / "watch"), str(self._there)),
            )
            yield

    def _start(self, stack: ExitStack, name: str, *words: str) -> None:
        command = [sys.executable, "-m", "penstock", *words]
        process = Process(command, self._folder / f"{name}.log", dict(os.environ))
        stack.callback(process.end, signal.SIGTERM)
        if words[0] == "pump":  # nobody gets what is announced before there is a subscriber
            process.wait_for_line("penstock pump ready")
        self._processes[name] = process.pid

    def churn(self) -> None:
        """One round of everything."""
        parameters = pika.URLParameters(self._broker.url)
        for _ in range(CONNECTIONS):
            with pika.BlockingConnection(parameters) as connection:
                self._churn_queue(connection.channel())
        self._churn_session()
        with BlockingJobsClient(self._broker.url) as jobs:
            submitted = [jobs.submit(Fake(f"soak-{next(self._numbers)}", 0.0)) for _ in range(3)]
            for job in submitted:
                job.result(timeout=PATIENCE)
        with pika.BlockingConnection(parameters) as connection:  # where responses stay for a day
            connection.channel().queue_purge(response_name("fake"))
        self._churn_files()

    def _churn_queue(self, channel: Any) -> None:
        queue = f"soak-{next(self._numbers)}"
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "amq.topic", f"{queue}.*")
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        for _ in range(MESSAGES):
            channel.basic_publish("amq.topic", f"{queue}.x", b"x" * 1000, persistent)
        for _ in range(MESSAGES):
            method, _, _ = channel.basic_get(queue)
            channel.basic_ack(method.delivery_tag)
        channel.queue_unbind(queue, "amq.topic", f"{queue}.*")
        channel.queue_delete(queue)

    def _churn_session(self) -> None:
        """A session that is kept, found again, and ended."""
        client, topic = f"soak-{next(self._numbers)}", f"soak/{next(self._numbers)}"
        with Paho(self._broker.mqtt_port, client, keep=True) as subscriber:
            subscriber.subscribe(topic, 1)
        with Paho(self._broker.mqtt_port, f"{client}-writer") as writer:
            writer.publish(topic, b"kept", 1)
        with Paho(self._broker.mqtt_port, client, keep=True) as subscriber:
            assert [each.payload for each in subscriber.arrived()] == [b"kept"]
        with Paho(self._broker.mqtt_port, client):
            pass

    def _churn_files(self) -> None:
        names = [f"file-{next(self._numbers)}" for _ in range(5)]
        for name in names:
            (self._there / name).write_bytes(os.urandom(10_000))
        _until(lambda: all(any(self._here.rglob(name)) for name in names), "a file has not come")
        for name in names:
            (self._there / name).unlink()
            for copy in self._here.rglob(name):
                copy.unlink(missing_ok=True)

    def sample(self, start: float) -> dict[str, Any]:
        found: dict[str, Any] = {"minute": round((time.monotonic() - start) / 60, 1)}
        for name, pid in self._processes.items():
            found[name] = {
                "resident_mb": round(resident_bytes(pid) / MIB, 1),
                "descriptors": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208 - numbers
            }
        data = self._broker.data.rglob("*")
        found["broker"]["disk_mb"] = round(sum(map(_size, data)) / MIB, 2)
        self.samples.append(found)
        return found

    def growth(self) -> dict[str, float]:
        """What is not flat: how much more there is in the last quarter than in the second."""
        quarter = len(self.samples) // 4
        found = {}
        for process in self._processes:
            for figure, slack in SLACK.items():
                values = [each[process].get(figure, 0.0) for each in self.samples]
                before, after = fmean(values[quarter : 2 * quarter]), fmean(values[-quarter:])
                if after > before * (1 + GROWTH) + slack:
                    found[f"{process} {figure}"] = round(after - before, 1)
        return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def run(minutes: float, samples: int = 60) -> tuple[Soak, int]:
    """The soak with its samples, and the number of rounds."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(Path(folder))
        with soak.running():
            start, rounds = time.monotonic(), 0
            while time.monotonic() - start < minutes * 60:
                soak.churn()
                rounds += 1
                if time.monotonic() - start >= len(soak.samples) * minutes * 60 / samples:
                    print(soak.sample(start), flush=True)
            while len(soak.samples) < 4:
                soak.churn()
                soak.sample(start)
        return soak, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--results", type=Path, required=True, help="a line for each run")
    options = parser.parse_args()
    records = Records(options.results)
    soak, rounds = run(options.minutes)
    records.add(minutes=options.minutes, rounds=rounds, growth=soak.growth(), samples=soak.samples)


if __name__ == "__main__":
    main()
