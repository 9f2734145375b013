"""What a broker tells of itself, and the questions it answers (class BROKER_MONITOR).

`BROKER_INFO` says how it is, unasked every so often and before it is stopped or shut down, and
whenever somebody asks, or looks for all brokers there are (`NETWORK_DISCOVERY`). `COMM_GET_ADV` and
`COMM_GET_SUB` list what it holds. A message whose way is to be seen is published with a trace, and
every broker tells where it sends it on to (`TRACEROUTE_MESSAGE`).
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from logging import DEBUG, getLogger
from typing import Any, Final

from penstock.broker.routing import OWN_HOPS
from penstock.core.errors import PreconditionFailed, Unsupported
from penstock.core.machine import memory_total, memory_used
from penstock.overlay.control import Operations
from penstock.overlay.heartbeats import Heartbeats
from penstock.overlay.own import Attributes, Own
from penstock.overlay.timers import Handle, Timers
from penstock.wire.padres.envelope import Envelope, Kind

CLASS: Final = "BROKER_MONITOR"
INFO: Final = "BROKER_INFO"
TRACE: Final = "TRACEROUTE_MESSAGE"
ANSWER: Final = "MSG_SET_DELIVERY_CLASS"
#: How many one answer lists, and how many bytes a broker says of itself unasked.
LISTED: Final = 1000
LARGEST: Final = 128 * 1024
#: Rates are not asked for more often than this.
_SHORTEST: Final = 0.001

_log = getLogger("penstock")


class Monitor:
    def __init__(
        self,
        own: Own,
        timers: Timers,
        heartbeats: Heartbeats,
        operations: Operations,
        *,
        uri: Callable[[], str] = str,
        interval: float = 0.0,
        full: bool = True,
    ) -> None:
        self._own = own
        self._timers = timers
        self._heartbeats = heartbeats
        self._operations = operations
        self._uri = uri
        self.interval = interval
        self._full = full
        self._timer: Handle | None = None
        exits = own.router.exits
        exits.tracer = self._trace
        exits.last_word = self.publish
        self._told_before = (exits.clock(), 0, 0)  # when, and what had come in by then
        me = own.broker_id
        self._commands: dict[str, Callable[[Attributes, bytes], None]] = {
            "SET_PUBLICATION_INTERVAL": self._set_interval,
            "STOP": lambda _said, _: exits.stop(),
            "RESUME": lambda _said, _: exits.resume(),
            "SHUTDOWN": self._shut_down,
            "PUBLISH_BROKER_INFO": lambda _said, _: self.publish(),
            "TRACE_PUBLICATION_MSG": partial(self._traced, Kind.PUBLISH),
            "TRACE_SUBSCRIPTION_MSG": partial(self._traced, Kind.SUBSCRIBE),
            "COMM_GET_ADV": partial(self._list, Kind.ADVERTISE),
            "COMM_GET_SUB": partial(self._list, Kind.SUBSCRIBE),
            "SET_FD_PARAMS": self._set_pulse,
        }
        own.advertise(INFO, f',[brokerID,eq,"{me}"]')
        own.advertise(TRACE, f',[from,eq,"{me}"],[to,isPresent,""],[TRACEROUTE_ID,isPresent,""]')
        own.advertise(ANSWER, f',[brokerID,eq,"{me}"],[COMM_SESSION_ID,isPresent,""]')
        own.hear(CLASS, f',[brokerID,eq,"{me}"]', self._told)
        own.hear("NETWORK_DISCOVERY", "", lambda _said, _: self.publish())
        self._again()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _told(self, said: Attributes, payload: bytes) -> None:
        command = str(said.get("command"))
        action = self._commands.get(command)
        if action is None:
            raise Unsupported(f"there is no command {command!r}: {', '.join(self._commands)}")
        action(said, payload)

    def _shut_down(self, said: Attributes, payload: bytes) -> None:
        self._own.router.exits.say_last("SHUTDOWN")
        self._operations.shutdown()

    # How it is.

    def publish(self, status: str = "") -> None:
        """Tell how it is, or what it is about to be.

        One that is stopped says nothing: it would be old when it goes out.
        """
        if self._own.router.exits.stopped and not status:
            return
        told = self.describe()
        told["status"] = status or told["status"]
        payload = json.dumps(told).encode()
        if self._full and len(payload) > LARGEST:  # `COMM_GET_…` asks for lists as long as that
            told |= {name: len(told[name]) for name in ("advertisements", "subscriptions")}
            payload = json.dumps(told).encode()
        self._own.publish(INFO, {"brokerID": self._own.broker_id}, payload)

    def describe(self) -> dict[str, Any]:
        """Rates are those since it was last told."""
        router = self._own.router
        advertised = [one.envelope for one in router.tables.advertised.values()]
        wanted = [one.envelope for one in router.tables.wanted.values()]
        neighbours = router.neighbours.values()
        return {
            "brokerID": self._own.broker_id,
            "uri": self._uri(),
            "status": "STOPPED" if router.exits.stopped else "RUNNING",
            "debug": _log.isEnabledFor(DEBUG),
            "publication_interval": self.interval,
            "heartbeats": self._heartbeats.pulse.enabled,
            "input_queue_size": router.exits.waiting,
            "neighbours": sorted(router.neighbours),
            "links": {one.name: one.usable for one in neighbours},
            "link_messages": {one.name: one.traffic.total for one in neighbours},
            "clients": self._clients(),
            "advertisements": _listed(advertised) if self._full else len(advertised),
            "subscriptions": _listed(wanted) if self._full else len(wanted),
            **self._incoming(),
            "match_seconds": router.match_seconds,
            "runtime": f"{platform.python_implementation()} {platform.python_version()}",
            "os": f"{platform.system()} {platform.release()}",
            "cpus": os.cpu_count(),
            "memory_used": memory_used(),
            "memory_total": memory_total(),
            "memory_free": max(0, memory_total() - memory_used()),
        }

    def _clients(self) -> list[str]:
        router, ours = self._own.router, f"{self._own.broker_id}-"
        return sorted(
            name
            for name in router.hops
            if name not in router.neighbours and not OWN_HOPS.fullmatch(name.removeprefix(ours))
        )

    def _incoming(self) -> dict[str, float]:
        received = self._own.router.received
        publications = received[Kind.PUBLISH]
        control = sum(received.values()) - publications
        now = self._own.router.exits.clock()
        before, published, controlled = self._told_before
        self._told_before = (now, publications, control)
        elapsed = max(now - before, _SHORTEST)
        return {
            "incoming_publications": publications,
            "incoming_control": control,
            "publication_rate": (publications - published) / elapsed,
            "control_rate": (control - controlled) / elapsed,
        }

    def _set_interval(self, said: Attributes, payload: bytes) -> None:
        self.interval = _number(said, "interval")
        self.stop()
        self._again()

    def _again(self) -> None:
        if self.interval > 0:
            self._timer = self._timers.later(self.interval, self._tick)

    def _tick(self) -> None:
        self.publish()
        self._again()

    def _list(self, kind: Kind, said: Attributes, payload: bytes) -> None:
        tables = self._own.router.tables
        if kind is Kind.ADVERTISE:
            found = [one.envelope for one in tables.advertised.values()]
        else:
            found = [one.envelope for one in tables.wanted.values()]
        session = str(said.get("COMM_SESSION_ID", ""))
        answer = {"brokerID": self._own.broker_id, "COMM_SESSION_ID": session}
        for start in range(0, max(1, len(found)), LISTED):
            listed = _listed(found[start : start + LISTED])
            self._own.publish(ANSWER, answer, json.dumps(listed).encode())

    def _set_pulse(self, said: Attributes, payload: bytes) -> None:
        pulse = self._heartbeats.pulse
        if "enabled" in said:
            pulse = replace(pulse, enabled=str(said["enabled"]).lower() == "true")
        if "interval" in said:
            pulse = replace(pulse, interval=_number(said, "interval"))
        if "timeout" in said:
            pulse = replace(pulse, timeout=_number(said, "timeout"))
        if "threshold" in said:
            pulse = replace(pulse, threshold=int(_number(said, "threshold")))
        self._heartbeats.set(pulse)

    # Ways.

    def _traced(self, kind: Kind, said: Attributes, payload: bytes) -> None:
        trace = said.get("TRACEROUTE_ID")
        if not isinstance(trace, str):
            raise PreconditionFailed("a trace has its name in TRACEROUTE_ID")
        self._own.say(kind, payload.decode(errors="replace"), trace=trace)

    def _trace(self, envelope: Envelope, to: str) -> None:
        said = {"from": self._own.broker_id, "to": to, "TRACEROUTE_ID": envelope.trace}
        self._own.router.later(partial(self._own.publish, TRACE, said))


def _listed(envelopes: list[Envelope]) -> dict[str, str]:
    return {one.id: one.text for one in envelopes}


def _number(said: Attributes, name: str) -> float:
    value = said.get(name)
    if not isinstance(value, (int, float)):
        raise PreconditionFailed(f"{name} is a number")
    return float(value)
