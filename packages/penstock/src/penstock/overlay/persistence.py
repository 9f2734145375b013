"""The stored state of a router.

`RouterJournal` stores in the topology journal: registrations of durable hops, by tree, and
neighbours with their addresses. Message numbers are reserved a thousand at a time, so that none is
used twice and few lines are written.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.broker.log.committer import Committer
from penstock.broker.topology import Topology
from penstock.broker.vhost import directory_name
from penstock.overlay.messages import WITHDRAWN_KINDS
from penstock.wire.padres.envelope import (
    EnvelopeKind,
    PadresEnvelope,
    decode_envelope,
    encode_envelope,
)

RESERVED_NUMBERS: Final = 1000

_REGISTRATION: Final = "content"
_NEIGHBOUR: Final = "neighbour"
_NUMBER: Final = "content-number"


class RouterJournal:
    def __init__(self, topology: Topology, vhost: str) -> None:
        self._topology = topology
        self._vhost = vhost
        found = dict(topology.all(_NUMBER)).get((_NUMBER, vhost), {"next": 1})
        self._next: int = found["next"]
        self._reserved_to = self._next

    # For the router.

    def add(self, hop: str, envelope: PadresEnvelope) -> None:
        packed = base64.b64encode(encode_envelope(envelope)).decode()
        key = self._key(hop, envelope.kind, envelope.id, envelope.tree)
        self._topology.put(key, {"hop": hop, "envelope": packed})

    def remove(self, hop: str, envelope: PadresEnvelope) -> None:
        self._topology.drop(
            self._key(hop, WITHDRAWN_KINDS[envelope.kind], envelope.text, envelope.tree)
        )

    def next_number(self) -> int:
        number = self._next
        self._next += 1
        if number >= self._reserved_to:
            self._reserved_to = number + RESERVED_NUMBERS
            self._topology.put((_NUMBER, self._vhost), {"next": self._reserved_to})
        return number

    def _key(self, hop: str, kind: EnvelopeKind, identity: str, tree: str) -> tuple[str, ...]:
        """An advertisement has one entry, and may be withdrawn by others than its source."""
        if kind is EnvelopeKind.ADVERTISE:
            hop = ""
        return (_REGISTRATION, self._vhost, hop, kind.name, identity, tree)

    # For the start.

    def registrations(self) -> Iterator[tuple[str, PadresEnvelope]]:
        """Hops and their registrations, in order."""
        for key, value in self._topology.all(_REGISTRATION):
            if key[1] == self._vhost:
                data = base64.b64decode(value["envelope"])
                yield value["hop"], decode_envelope(data, 0)[0]

    def neighbours(self) -> dict[str, str]:
        """Neighbours and their addresses; empty if the neighbour connects itself.

        Earlier versions stored under `uri` the neighbour's own address, which is not used.
        """
        found: Iterator[tuple[tuple[str, ...], dict[str, Any]]] = self._topology.all(_NEIGHBOUR)
        return {key[2]: value.get("address", "") for key, value in found if key[1] == self._vhost}

    def store_neighbour(self, name: str, address: str) -> None:
        self._topology.put((_NEIGHBOUR, self._vhost, name), {"address": address})

    def remove_neighbour(self, name: str) -> None:
        self._topology.drop((_NEIGHBOUR, self._vhost, name))


class Watermark:
    """The number of the last publication received from a neighbour, to detect duplicates.

    It is written after the publications of the same batch: a crash between may duplicate one, but
    loses none. It is valid for one store of the neighbour.
    """

    def __init__(self, path: Path, store: str, committer: Committer) -> None:
        self.store = store
        self._path = path
        self._committer = committer
        self._written = self.number = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        known_store, _, number = os.read(self._fd, 4096).decode(errors="replace").partition(" ")
        if known_store == store and number.strip().isdigit():
            self._written = self.number = int(number)
        else:
            os.ftruncate(self._fd, 0)

    def move(self, number: int) -> None:
        if self.number == self._written:
            self._committer.touch(self, lazy=True)
        self.number = number

    # For the committer.

    def write(self) -> None:
        if self._fd < 0:  # closed
            return
        line = f"{self.store} {self.number:020}\n".encode()  # of constant length: never torn
        os.pwrite(self._fd, line, 0)
        if (observer := self._committer.observer) is not None:
            observer.append(self._path, 0, line)
        self._written = self.number

    def begin_sync(self) -> list[int]:
        return [os.dup(self._fd)] if self._fd >= 0 else []

    def end_sync(self, error: OSError | None) -> None:
        """Nothing to do: the next number is written in any case."""

    def close(self) -> None:
        if self._fd >= 0:
            if self.number != self._written:
                self.write()
            os.close(self._fd)
            self._fd = -1


class Watermarks:
    """The watermarks of all neighbours, one small file each."""

    def __init__(self, directory: Path, committer: Committer) -> None:
        self._directory = directory
        self._committer = committer
        self._open: dict[str, Watermark] = {}

    def of(self, neighbour: str, store: str) -> Watermark:
        found = self._open.get(neighbour)
        if found is not None and found.store == store:
            return found
        if found is not None:
            found.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{directory_name(neighbour)}.mark"
        mark = self._open[neighbour] = Watermark(path, store, self._committer)
        return mark

    def close(self) -> None:
        for mark in self._open.values():
            mark.close()
        self._open.clear()
