"""What clients were told, and whether it is consistent. Nothing here knows the brokers."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Leader(NamedTuple):
    epoch: int
    member: str


class ConsumerEvent(NamedTuple):
    """What a consumer did or saw on one of its connections, in order."""

    #: `delivered` and `acknowledged` have a message; `confirmed`: a publish of the consumer, sent
    #: after all before, was confirmed; `lost`: the connection broke.
    kind: Literal["delivered", "acknowledged", "confirmed", "lost"]
    connection: int
    message: str = ""


@dataclass
class History:
    """Records of all clients; `final` is what the queues had at the end."""

    confirmed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    final: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    leaders: set[Leader] = field(default_factory=set)  #: who confirmed
    reads: list[tuple[str, int, str]] = field(default_factory=list)  #: reader, offset, message
    consumed: list[ConsumerEvent] = field(default_factory=list)
    once: list[str] = field(default_factory=list)  #: received with QoS 2
    lost_sessions: list[str] = field(default_factory=list)  #: of MQTT, by client
    confirm_times: list[float] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)  #: when a leader was killed
    lock: threading.Lock = field(default_factory=threading.Lock)

    def confirm(self, queue: str, message: str, leader: Leader | None, now: float) -> None:
        with self.lock:
            self.confirmed[queue].add(message)
            self.confirm_times.append(now)
            if leader is not None:
                self.leaders.add(leader)


def check(history: History, resume_seconds: float | None = None) -> list[str]:
    """Every violation, in words."""
    found = _returned(history)
    acknowledged = {one.message for one in history.consumed if one.kind == "acknowledged"}
    for queue, confirmed in history.confirmed.items():
        lost = confirmed - history.final[queue] - acknowledged
        if lost:
            found.append(f"{len(lost)} confirmed messages lost from {queue}: {sorted(lost)[:5]}")
    members = defaultdict(set)
    for leader in history.leaders:
        members[leader.epoch].add(leader.member)
    for epoch, leaders in members.items():
        if len(leaders) > 1:
            found.append(f"several leaders confirmed in epoch {epoch}: {sorted(leaders)}")
    at: dict[int, str] = {}
    for reader, offset, message in history.reads:
        if at.setdefault(offset, message) != message:
            found.append(f"{reader} read {message} at offset {offset}, where {at[offset]} was")
    twice = sorted(one for one, times in Counter(history.once).items() if times > 1)
    if twice:
        found.append(f"{len(twice)} messages of QoS 2 received more than once: {twice[:5]}")
    found += [f"the session of {client} was lost" for client in history.lost_sessions]
    if resume_seconds is not None:
        for death in history.deaths:
            later = [when for when in history.confirm_times if when > death]
            if not later or min(later) - death > resume_seconds:
                found.append(f"no confirm within {resume_seconds:g} s of a leader's death")
    return found


def _returned(history: History) -> list[str]:
    """An acknowledgement is safe while its connection lives, and for ever once a publish that
    followed it on the connection was confirmed. Else its message may return."""
    found = []
    sent_on: dict[str, int] = {}  # acknowledgements, not known to be replicated
    safe: set[str] = set()
    lost: set[int] = set()
    for kind, connection, message in history.consumed:
        if kind == "delivered":
            if message in safe:
                found.append(f"{message} returned after its acknowledgement was replicated")
            elif message in sent_on and sent_on[message] not in lost:
                found.append(f"{message} returned after its acknowledgement")
        elif kind == "acknowledged":
            sent_on[message] = connection
        elif kind == "confirmed":
            replicated = [one for one, on in sent_on.items() if on == connection]
            safe.update(replicated)
            for one in replicated:
                del sent_on[one]
        else:
            lost.add(connection)
    return found
