"""What all pumps are measured on: a broker, a tree of files, a server of them, a fresh folder each.

The server is a process of its own, so that its CPU time is nobody's; it answers a request in one
write and keeps connections open.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.errors import PeerFailed
from benchmarks.peers import Peer

_DIRECTORIES: Final = 50
_START_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Ground:
    """Where one run takes place; names are its own."""

    broker: Peer
    folder: Path
    label: str

    @classmethod
    def new(cls, broker: Peer, folder: Path) -> Ground:
        label = uuid.uuid4().hex[:8]
        place = folder / label
        place.mkdir(parents=True)
        return cls(broker, place, label)

    @property
    def exchange(self) -> str:
        return f"x{self.label}"

    @property
    def queue(self) -> str:
        return f"q_guest_{self.label}"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.broker.port}/%2F"

    @property
    def plain_url(self) -> str:
        """As Sarracenia has it: the password is in its file of credentials."""
        return f"amqp://guest@127.0.0.1:{self.broker.port}/"


def make_tree(folder: Path, files: int, size: int) -> None:
    for number in range(files):
        path = folder / f"d{number % _DIRECTORIES:02d}" / f"f{number:06d}"
        if number < _DIRECTORIES:
            path.parent.mkdir(parents=True)
        path.write_bytes(os.urandom(size))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a server of that folder."""
    command = [sys.executable, "-m", "benchmarks.pump.served", str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None
        said, _, _ = select.select([child.stdout], [], [], _START_SECONDS)
        line = child.stdout.readline().decode().strip() if said else ""
        if not line:
            raise PeerFailed("the server of files did not start")
        yield line
    finally:
        child.kill()
        child.wait()
