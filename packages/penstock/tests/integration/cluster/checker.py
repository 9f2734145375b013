"""What clients were told, and whether it is consistent. Nothing here knows the brokers."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

#: An acknowledgement sent so shortly before its connection broke may be lost: the leader may have
#: been paused or cut off when it was sent, and the client notices that late.
ACK_WINDOW_SECONDS = 10.0


class Leader(NamedTuple):
    epoch: int
    member: str


@dataclass
class History:
    """Records of all clients; `final` is what the queues had at the end."""

    confirmed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    final: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    leaders: set[Leader] = field(default_factory=set)  #: who confirmed
    reads: list[tuple[str, int, str]] = field(default_factory=list)  #: reader, offset, message
    acknowledged: dict[str, tuple[float, int]] = field(default_factory=dict)  #: time, connection
    returned: list[str] = field(default_factory=list)  #: delivered after its acknowledgement
    broken: dict[int, float] = field(default_factory=dict)  #: when a connection was lost
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
    found = []
    for queue, confirmed in history.confirmed.items():
        lost = confirmed - history.final[queue] - history.acknowledged.keys()
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
    for message in history.returned:
        when, connection = history.acknowledged[message]
        broke = history.broken.get(connection)
        if broke is None or broke - when > ACK_WINDOW_SECONDS:
            found.append(f"{message} returned after its acknowledgement")
    if resume_seconds is not None:
        for death in history.deaths:
            later = [when for when in history.confirm_times if when > death]
            if not later or min(later) - death > resume_seconds:
                found.append(f"no confirm within {resume_seconds:g} s of a leader's death")
    return found
