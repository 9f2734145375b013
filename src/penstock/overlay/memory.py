"""What a router remembers from one start of its broker to the next.

It lies in the broker's journal of topology: every advertisement and subscription of a lasting hop,
along each tree it counts, and every neighbour with its address. Numbers of messages are set aside a
thousand at a time, so that none is given twice, and few lines are written for it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from penstock.broker.topology import Topology
from penstock.overlay.undoing import UNDOES
from penstock.wire.padres.envelope import Envelope, Kind
from penstock.wire.padres.envelopes import encode_envelope, read_envelope

#: How many numbers are set aside at once.
NUMBERS: Final = 1000

_ASKED: Final = "content"
_NEIGHBOUR: Final = "neighbour"
_NUMBER: Final = "content-number"


class Remembered:
    def __init__(self, topology: Topology, vhost: str) -> None:
        self._topology = topology
        self._vhost = vhost
        found = dict(topology.all(_NUMBER)).get((_NUMBER, vhost), {"next": 1})
        self._next: int = found["next"]
        self._set_aside = self._next

    # What the router asks of its memory.

    def keep(self, hop: str, envelope: Envelope) -> None:
        packed = base64.b64encode(encode_envelope(envelope)).decode()
        key = self._key(hop, envelope.kind, envelope.id, envelope.tree)
        self._topology.put(key, {"hop": hop, "envelope": packed})

    def forget(self, hop: str, envelope: Envelope) -> None:
        self._topology.drop(self._key(hop, UNDOES[envelope.kind], envelope.text, envelope.tree))

    def next_number(self) -> int:
        number = self._next
        self._next += 1
        if number >= self._set_aside:
            self._set_aside = number + NUMBERS
            self._topology.put((_NUMBER, self._vhost), {"next": self._set_aside})
        return number

    def _key(self, hop: str, kind: Kind, identity: str, tree: str) -> tuple[str, ...]:
        """An advertisement is there once, and may be undone by others than it came from."""
        if kind is Kind.ADVERTISE:
            hop = ""
        return (_ASKED, self._vhost, hop, kind.name, identity, tree)

    # What is there at a start.

    def asked(self) -> Iterator[tuple[str, Envelope]]:
        """The hops, and what each had asked for, in the order it came."""
        for key, value in self._topology.all(_ASKED):
            if key[1] == self._vhost:
                data = base64.b64decode(value["envelope"])
                yield value["hop"], read_envelope(data, 0)[0]

    def neighbours(self) -> dict[str, str]:
        """The addresses that operators gave of neighbours; empty where there was none.

        Earlier versions kept under `uri` what the neighbour said itself, which nobody dials now.
        """
        found: Iterator[tuple[tuple[str, ...], dict[str, Any]]] = self._topology.all(_NEIGHBOUR)
        return {key[2]: value.get("address", "") for key, value in found if key[1] == self._vhost}

    def keep_neighbour(self, name: str, address: str) -> None:
        self._topology.put((_NEIGHBOUR, self._vhost, name), {"address": address})

    def forget_neighbour(self, name: str) -> None:
        self._topology.drop((_NEIGHBOUR, self._vhost, name))
