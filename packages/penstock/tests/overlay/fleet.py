"""Brokers as processes of their own, which can be killed, and come back to their data."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.overlay.house import allow_links
from tests.peers import Process, free_port


class BrokerProcess:
    def __init__(self, folder: Path, name: str, *settings: str) -> None:
        self.name = name
        self.port = free_port()
        self._folder = folder / name
        self._settings = settings
        self._neighbours: list[str] = []
        self._known_by: list[str] = []
        self._process: Process | None = None
        self._starts = 0

    @property
    def uri(self) -> str:
        return f"padres://127.0.0.1:{self.port}/{self.name}"

    def knows(self, other: BrokerProcess) -> None:
        self._neighbours.append(other.uri)
        other._known_by.append(self.name)

    def begin(self) -> None:
        """Start it without waiting until it is ready."""
        allow_links(self._folder / "data")
        self._starts += 1
        settings = (
            f"broker.overlay.id={self.name}",
            f"broker.overlay.neighbours={','.join(self._neighbours)}",
            f"broker.overlay.accept_links_from={','.join(self._known_by)}",
            "broker.overlay.user=links",
            "broker.overlay.password=links",
            "broker.overlay.retry_pause=0.3",
            "broker.overlay.retry_limit=0",
            *self._settings,
        )
        self._process = Process(
            [
                *(sys.executable, "-m", "penstock", "broker", "--data", str(self._folder / "data")),
                *("--listen", f"padres://127.0.0.1:{self.port}"),
                *(word for one in settings for word in ("--set", one)),
            ],
            self._folder / f"broker-{self._starts}.log",
            dict(os.environ),
        )

    def ready(self) -> None:
        assert self._process is not None
        self._process.wait_for_line("penstock broker ready")

    def start(self) -> None:
        self.begin()
        self.ready()

    def kill(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGKILL)

    @property
    def log(self) -> str:
        assert self._process is not None
        return self._process.output()


def kill_all(brokers: Iterable[BrokerProcess]) -> None:
    for broker in brokers:
        broker.kill()
