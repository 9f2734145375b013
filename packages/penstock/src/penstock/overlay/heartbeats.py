"""Heartbeats of neighbours.

Each neighbour is sent `HEARTBEAT_REQ` at intervals and must answer `HEARTBEAT_ACK` in time. After
several missed answers in a row it has failed, which is published (`FAILURE_DETECTED`); with the
next answer it is back (`FAILURE_CLEARED`). With dynamic cycles, publications avoid failed
neighbours. Settings can be changed while the broker runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import time
from typing import Final, NamedTuple, Protocol

from penstock.content.messages import Value
from penstock.core.errors import PreconditionFailed
from penstock.core.logs import get_logger
from penstock.overlay.self import Attributes, SelfHop

HEARTBEAT_CLASS: Final = "HEARTBEAT_MANAGER"
#: Failures that are reported with the status.
MAX_FAILURES: Final = 50

_log = get_logger("penstock.overlay")


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    enabled: bool = False
    interval: float = 3.0
    timeout: float = 5.0
    threshold: int = 3

    def __post_init__(self) -> None:
        if self.interval <= 0 or self.timeout <= 0 or self.threshold < 1:
            raise PreconditionFailed(
                "heartbeat interval and timeout must be greater than 0, the threshold at least 1"
            )


class _PendingHeartbeat(NamedTuple):
    neighbour: str
    sent_at: float
    timeout: TimerHandle


class Heartbeats:
    def __init__(self, self_hop: SelfHop, timers: Timers, settings: HeartbeatSettings) -> None:
        self._self_hop = self_hop
        self._timers = timers
        self.settings = settings
        self._next = 0
        self._clock = self_hop.router.next_hops.clock
        self._waiting: dict[int, _PendingHeartbeat] = {}
        self._missed: dict[str, int] = {}
        self._detected: set[str] = set()
        self.failures: deque[dict[str, object]] = deque(maxlen=MAX_FAILURES)  #: the newest last
        self._timer: TimerHandle | None = None
        me = self_hop.broker_id
        self_hop.advertise(
            HEARTBEAT_CLASS,
            f',[detectorID,eq,"{me}"],[detectedID,isPresent,""],[type,isPresent,""]',
        )
        self_hop.subscribe(HEARTBEAT_CLASS, f',[brokerID,eq,"{me}"]', self._on_heartbeat)
        self_hop.subscribe("GLOBAL_FD", ",[flag,isPresent,x]", self._on_global_switch)
        if settings.enabled:
            self._beat()

    def set(self, settings: HeartbeatSettings) -> None:
        self.settings = settings
        self.stop()
        if settings.enabled:
            self._beat()
        else:  # without heartbeats no failure is known
            for name in self._detected & self._self_hop.router.neighbours.keys():
                self._self_hop.router.neighbours[name].failed = False
            self._detected.clear()
            self._missed.clear()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in self._waiting.values():
            pending.timeout.cancel()
        self._waiting.clear()

    def _on_global_switch(self, attributes: Attributes, payload: bytes) -> None:
        self.set(replace(self.settings, enabled=str(attributes["flag"]).lower() == "true"))

    def _beat(self) -> None:
        self._timer = self._timers.later(self.settings.interval, self._beat)
        if (
            self._self_hop.router.next_hops.stopped
        ):  # nothing is sent: a missing answer proves nothing
            return
        for name in list(self._self_hop.router.neighbours):
            self._next += 1
            number = self._next
            timeout = self._timers.later(self.settings.timeout, partial(self._on_timeout, number))
            self._waiting[number] = _PendingHeartbeat(name, self._clock(), timeout)
            self._send_heartbeat(name, "HEARTBEAT_REQ", number)

    def _send_heartbeat(self, name: str, kind: str, handle: int) -> None:
        me = self._self_hop.broker_id
        attributes: dict[str, Value] = {
            "brokerID": name,
            "fromID": me,
            "type": kind,
            "handle": handle,
        }
        self._self_hop.send_to_neighbour(name, HEARTBEAT_CLASS, attributes)

    def _on_timeout(self, number: int) -> None:
        pending = self._waiting.pop(number)
        name = pending.neighbour
        neighbour = self._self_hop.router.neighbours.get(name)
        if neighbour is None or neighbour.up_since > pending.sent_at:
            return  # it was sent over a previous link
        missed = self._missed[name] = self._missed.get(name, 0) + 1
        if missed >= self.settings.threshold and name not in self._detected:
            neighbour.failed = True
            self._detected.add(name)
            self._publish(name, "FAILURE_DETECTED")

    def _on_heartbeat(self, attributes: Attributes, payload: bytes) -> None:
        name, handle = str(attributes.get("fromID")), attributes.get("handle")
        if not isinstance(handle, int) or name not in self._self_hop.router.neighbours:
            return
        if attributes.get("type") == "HEARTBEAT_REQ":
            self._send_heartbeat(name, "HEARTBEAT_ACK", handle)
        elif attributes.get("type") == "HEARTBEAT_ACK":
            self._answered(name, handle)

    def _answered(self, name: str, handle: int) -> None:
        pending = self._waiting.pop(handle, None)
        if pending is not None:
            pending.timeout.cancel()
        self._missed[name] = 0
        self._self_hop.router.neighbours[name].failed = False
        if name in self._detected:
            self._detected.remove(name)
            self._publish(name, "FAILURE_CLEARED")

    def _publish(self, name: str, what: str) -> None:
        _log.warning("neighbour heartbeat", neighbour=name, status=what)
        self.failures.append({"time": time(), "neighbour": name, "type": what})
        attributes = {"detectorID": self._self_hop.broker_id, "detectedID": name, "type": what}
        self._self_hop.publish(HEARTBEAT_CLASS, attributes)


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The loop's timers in a broker, simulated ones in tests."""

    def later(self, seconds: float, action: Callable[[], None]) -> TimerHandle: ...
