"""A load test: starts the processes, starts them together, and sums up their reports."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from penstock.core.errors import ConnectionForced
from penstock.perf.histogram import LatencyHistogram
from penstock.perf.workload import (
    DRAIN_SECONDS,
    LoadReport,
    Workload,
    clean_up,
    prepare,
    run_process,
)

START_SECONDS: Final = 30.0


@dataclass(slots=True)
class LoadResult:
    """The sums of all processes. `seconds` is from the start to the last message."""

    sent: int = 0
    confirmed: int = 0
    received: int = 0
    seconds: float = 0.0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)

    def add(self, report: LoadReport) -> None:
        self.sent += report.sent
        self.confirmed += report.confirmed
        self.received += report.received
        self.latency.merge(report.latency)

    def to_json(self) -> dict[str, Any]:
        seconds = self.seconds or 1.0
        quantiles = {f"p{share * 100:g}": self.latency.quantile(share) for share in QUANTILES}
        return {
            "seconds": round(self.seconds, 3),
            "sent": self.sent,
            "confirmed": self.confirmed,
            "received": self.received,
            "sent_per_second": round(self.sent / seconds, 1),
            "received_per_second": round(self.received / seconds, 1),
            "latency_seconds": {
                **{name: round(value, 6) for name, value in quantiles.items()},
                "max": round(self.latency.longest, 6),
            },
        }


QUANTILES: Final = (0.5, 0.95, 0.99, 0.999)


class LoadTest:
    def __init__(self, workload: Workload, publishers: int, consumers: int, processes: int) -> None:
        self._workload = workload
        #: Publishers and consumers of each process; a process has one kind, if there are several.
        self._shares = [
            share
            for share in (
                *((part, 0) for part in _split(publishers, processes)),
                *((0, part) for part in _split(consumers, processes)),
            )
            if any(share)
        ]
        self._consumers = consumers

    def run(self, on_progress: Callable[[LoadResult], None] = lambda result: None) -> LoadResult:
        asyncio.run(prepare(self._workload))
        try:
            with self._processes() as pipes:
                self._await_ready(pipes)
                start = time.monotonic()
                _broadcast(pipes)
                return self._collect(pipes, start, on_progress)
        finally:
            asyncio.run(clean_up(self._workload))

    @contextlib.contextmanager
    def _processes(self) -> Iterator[list[Connection]]:
        context = multiprocessing.get_context("spawn")
        pipes: list[Connection] = []
        processes: list[BaseProcess] = []
        try:
            for publishers, consumers in self._shares:
                ours, theirs = context.Pipe()
                process: BaseProcess = context.Process(
                    target=run_process, args=(self._workload, publishers, consumers, theirs)
                )
                process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
            yield pipes
        finally:
            for pipe in pipes:
                pipe.close()
            for process in processes:
                process.join(1.0)
                if process.is_alive():
                    process.terminate()
                    process.join()

    @staticmethod
    def _await_ready(pipes: list[Connection]) -> None:
        for pipe in pipes:
            report = pipe.recv() if pipe.poll(START_SECONDS) else LoadReport(error="timed out")
            if report.error:
                raise ConnectionForced(f"the load test could not start: {report.error}")

    def _collect(
        self, pipes: list[Connection], start: float, on_progress: Callable[[LoadResult], None]
    ) -> LoadResult:
        """Until the publishers have ended and the last message has arrived."""
        result = LoadResult()
        open_pipes = set(pipes)
        publishing = {pipe for pipe, (count, _) in zip(pipes, self._shares, strict=True) if count}
        last = time.monotonic()
        while open_pipes:
            for each in wait(list(open_pipes), timeout=0.2):
                pipe = next(known for known in open_pipes if known is each)
                try:
                    report = pipe.recv()
                except EOFError:
                    open_pipes.discard(pipe)
                    publishing.discard(pipe)
                    continue
                if report.error:
                    raise ConnectionForced(f"the load test ended: {report.error}")
                if report.sent or report.received:
                    last = time.monotonic()
                result.add(report)
                result.seconds = last - start
                on_progress(result)
            ended = not publishing and time.monotonic() - last > DRAIN_SECONDS
            if open_pipes and ended:
                _broadcast(list(open_pipes))
                open_pipes = self._drain(open_pipes, result)
        return result

    @staticmethod
    def _drain(pipes: set[Connection], result: LoadResult) -> set[Connection]:
        for pipe in pipes:
            with contextlib.suppress(EOFError):
                while pipe.poll(DRAIN_SECONDS):
                    result.add(pipe.recv())
        return set()


def _split(total: int, parts: int) -> list[int]:
    """As equal as possible."""
    return [total // parts + (number < total % parts) for number in range(parts)]


def _broadcast(pipes: list[Connection]) -> None:
    for pipe in pipes:
        with contextlib.suppress(OSError):
            pipe.send(None)
