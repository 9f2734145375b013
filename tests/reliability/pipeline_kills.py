"""The hives flow on executors in processes of their own, with its lake in an object store, while
everything it needs is killed or fails: the driver inside a batch, Python workers, executors, the
database, the broker, the object store (errors, lost answers, time-outs).

A round is one backlog and several faults, each in a batch after the one before. The last fault
kills the driver, and the rest of the backlog is applied in large batches. At the end bronze is
compared with what was published, silver and gold with an undisturbed run: nothing is lost and
nothing is counted twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from benchmarks.usage import tree_of
from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_spark.lake import Lake, StorageLocation
from penstock_store import Database, EmbeddedServer
from tests.databases import copy_of, grounds_of_its_own, new_template
from tests.hives.occupancy.gold.fleets import START, tables_of
from tests.hives.occupancy.gold.test_live import send
from tests.peers import Penstock, Process
from tests.pipeline.flow.test_kills import HASTE, PROGRAM
from tests.pipeline.object_store import CREDENTIALS, ObjectStore, faulty, object_store

FAULTS_PER_ROUND: Final = 20
PATIENCE: Final = 900.0
MASTER: Final = "local-cluster[2,1,1024]"
HOURS: Final = 30.0
#: So small that there are batches enough for every fault to meet another one.
BATCH: Final = 40
#: Of runs that nothing disturbs.
LARGE_BATCH: Final = 5_000
KINDS: Final = ("driver", "worker", "executor", "database", "broker", "store")
#: Requests that the object store fails in a row, and how.
STORE_FAULTS: Final = 6
STORE_DECISIONS: Final[tuple[str | int, ...]] = (503, 500, "lose", "time-out")
TIME_OUT_SECONDS: Final = 4.0
_SILVER: Final = ("stream", "offset", "sensor", "delta_in", "delta_out", "quality", "missed")


@dataclass
class FailingStore:
    """An object store behind a proxy that fails the next requests."""

    store: ObjectStore
    port: int = 0
    _decisions: list[str | int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, decisions: list[str | int]) -> None:
        with self._lock:
            self._decisions += decisions

    def decide(self, method: str, path: str) -> str | int:
        with self._lock:
            decision = self._decisions.pop() if self._decisions else "pass"
        if decision == "time-out":
            time.sleep(TIME_OUT_SECONDS)
            return "lose"
        return decision

    @property
    def options(self) -> dict[str, str]:
        return {
            **CREDENTIALS,
            "aws_endpoint_url": f"http://127.0.0.1:{self.port}",
            "timeout": f"{TIME_OUT_SECONDS / 2:g}s",
        }


@contextmanager
def failing_store() -> Iterator[FailingStore]:
    with object_store() as store:
        found = FailingStore(store)
        with faulty(store, found.decide) as found.port:
            yield found


@dataclass
class FlowRun:
    """`penstock pipeline once`, started as often as it takes, and its layers."""

    broker: Penstock
    data: Path
    database: str
    lake: StorageLocation
    master: str = "local[2]"
    starts: int = 0

    def start(self, max_batch: int = BATCH) -> Process:
        self.starts += 1
        arguments = [
            *("once", "--url", self.broker.url, "--data", str(self.data)),
            *("--database", self.database, "--max-batch", str(max_batch), "--master", self.master),
            *(word for setting in HASTE for word in ("--spark", setting)),
        ]
        if self.lake.path is None:
            arguments += ["--lake", self.lake.url]
            for name, value in self.lake.storage_options.items():
                arguments += ["--lake-option", f"{name}={value}"]
        self.data.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        return Process([*PROGRAM, *arguments], self.data / f"{self.starts}.log", environment)

    def finish(self) -> None:
        process = self.start(LARGE_BATCH)
        try:
            _until(lambda: not process.running(), process)
            assert process.end(signal.SIGTERM) == 0, process.output()[-4000:]
        finally:
            process.end_group(signal.SIGKILL)

    def batches(self) -> int:
        with Database(self.database) as database:
            return int(database.rows("SELECT count(*) AS n FROM pipeline_batch")[0]["n"])

    def await_batches(self, process: Process, count: int) -> None:
        """Returns when so many more are applied, or it has ended."""
        wanted = self.batches() + count
        _until(lambda: not process.running() or self.batches() >= wanted, process)

    def layers(self, location: StorageLocation) -> dict[str, Any]:
        """Bronze, silver and gold, in an order that does not depend on how they came about."""
        lake = Lake(location, "hives")
        bronze = _rows(lake, "bronze.messages", ("offset", "routing_key", "body"))
        with Database(self.database) as database:
            gold = tables_of(database)
        return {"bronze": bronze, "silver": _rows(lake, "silver.reports", _SILVER), **gold}


def _rows(lake: Lake, name: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    table = lake.table(name)
    found: list[tuple[Any, ...]] = []
    for file in table.files():
        rows = table.read_file(file, list(columns))
        found += zip(*(rows[each].to_pylist() for each in columns), strict=True)
    return sorted(found)


def _until(condition: Callable[[], bool], process: Process) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited too long:\n{process.output()[-4000:]}"
        time.sleep(0.02)


class KillCampaign:
    """A broker with a backlog, a database server and an object store; the undisturbed result."""

    def __init__(self, folder: Path, server: EmbeddedServer, store: FailingStore) -> None:
        self._folder = folder
        self._server = server
        self._store = store
        self._fleet = Fleet(
            start=START, seed=11, hives=4, quirks=Quirks(restarts=2.0, corrupt=0.01)
        )
        self._broker = Penstock(folder / "broker")
        self._broker.start()
        asyncio.run(send(self._broker.url, self._fleet, HOURS))
        self._template = new_template(server.url)
        with Database(self._template) as opened:
            catalogue_writer.write_catalogue(opened, self._fleet.hives, self._fleet.sensors)
        self._expected = self._undisturbed()

    def close(self) -> None:
        self._broker.stop()

    def _undisturbed(self) -> dict[str, Any]:
        data = self._folder / "undisturbed"
        with copy_of(self._template) as database:
            lake = StorageLocation.parse(data / "lake")
            run = FlowRun(self._broker, data, database, lake)
            run.finish()
            layers = run.layers(lake)
        bronze = [row[1:] for row in layers["bronze"]]
        assert bronze == published(), "bronze is not what was published"
        return layers

    def run_round(self, seed: int, faults: int = FAULTS_PER_ROUND) -> dict[str, int]:
        """How often each kind of fault was injected."""
        chance, done = random.Random(seed), dict.fromkeys(KINDS, 0)
        data = self._folder / f"round-{seed}"
        lake = StorageLocation.parse(f"s3://lake/round-{seed}", self._store.options)
        with copy_of(self._template) as database:
            run = FlowRun(self._broker, data, database, lake, MASTER)
            process = run.start()
            try:
                for number in range(faults):
                    kind = KINDS[(seed * faults + number) % len(KINDS)]
                    run.await_batches(process, chance.randrange(1, 3))
                    if not process.running():
                        break  # the backlog was too short for more
                    time.sleep(chance.uniform(0.0, 0.8))  # the moment is the point
                    if self._inject(kind, process, chance):
                        done[kind] += 1
                    if kind == "driver" and number < faults - 1:
                        process = run.start()
                if process.running():
                    run.await_batches(process, 1)
                    done["driver"] += self._inject("driver", process, chance)
            finally:
                process.end_group(signal.SIGKILL)
            run.finish()
            # Not through the proxy: delta-rs waits for this process and keeps it from answering.
            found = run.layers(self._store.store.location(f"round-{seed}"))
        for name, rows in self._expected.items():
            assert found[name] == rows, f"{name} differs from the undisturbed run"
        return done

    def _inject(self, kind: str, process: Process, chance: random.Random) -> bool:
        match kind:
            case "driver":
                process.end_group(signal.SIGKILL)  # with Java, executors and workers
            case "worker":
                return _kill_one(process, "pyspark.worker", chance)
            case "executor":
                return _kill_one(process, "CoarseGrainedExecutorBackend", chance)
            case "database":
                self._restart_database()
            case "broker":
                self._broker.kill()
                self._broker.start()
            case "store":
                self._store.fail([chance.choice(STORE_DECISIONS) for _ in range(STORE_FAULTS)])
        return True

    def _restart_database(self) -> None:
        """At once and without a checkpoint: the next server has to recover."""
        pid = self._server.pid
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + PATIENCE
        while self._server.pid is not None:
            assert time.monotonic() < deadline, "the database did not end"
            time.sleep(0.02)
        self._server.close()
        self._server.start()


def new_fleet() -> Fleet:
    """A day with all troubles."""
    return Fleet(start=START, seed=11, hives=4, quirks=Quirks(restarts=2.0, corrupt=0.01))


def published() -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for window in new_fleet().windows(START + timedelta(hours=HOURS)):
        columns = (window.frames[name].to_pylist() for name in ("routing_key", "body"))
        found += zip(*columns, strict=True)
    return found


def _kill_one(process: Process, words: str, chance: random.Random) -> bool:
    """False if there is no such process at this moment."""
    found = [pid for pid in tree_of(process.pid) if words in _command_line(pid)]
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(chance.choice(found), signal.SIGKILL)
        return True
    return False


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextmanager
def campaign() -> Iterator[KillCampaign]:
    with ExitStack() as stack:
        folder = stack.enter_context(grounds_of_its_own())
        server = stack.enter_context(EmbeddedServer(folder / "pg"))
        store = stack.enter_context(failing_store())
        opened = KillCampaign(folder, server, store)
        stack.callback(opened.close)
        yield opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="faults in all")
    parser.add_argument("--first-seed", type=int, default=0, help="to continue another run")
    parser.add_argument("--results", type=Path, required=True, help="a line for each round")
    options = parser.parse_args()
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    done = sum(sum(json.loads(line)["faults"].values()) for line in lines)
    with campaign() as opened:
        seed = options.first_seed + len(lines)
        while done < options.count:
            start, problem, faults = time.monotonic(), "", dict[str, int]()
            try:
                faults = opened.run_round(seed)
            except AssertionError as error:
                problem = str(error) or "a wait timed out"
            record = {"seed": seed, "faults": faults, "problem": problem}
            record["seconds"] = round(time.monotonic() - start, 1)
            with options.results.open("a") as file:
                file.write(json.dumps(record) + "\n")
            sys.stdout.write(f"{record}\n")
            sys.stdout.flush()
            done += sum(faults.values())
            seed += 1


if __name__ == "__main__":
    main()
