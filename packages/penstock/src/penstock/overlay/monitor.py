"""Broker status and monitoring commands (class BROKER_MONITOR).

`BROKER_INFO` is published at intervals, before stop and shutdown, on request, and on
`NETWORK_DISCOVERY`. `COMM_GET_ADV` and `COMM_GET_SUB` list registrations. For a traced message
every broker publishes its next hops (`TRACEROUTE_MESSAGE`).
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from logging import DEBUG, getLogger
from typing import Any, Final

from penstock.broker.content_router import RESERVED_HOP_NAMES
from penstock.core.errors import PreconditionFailed, Unsupported
from penstock.core.resources import memory_total, memory_used
from penstock.overlay.heartbeats import Heartbeats, TimerHandle, Timers
from penstock.overlay.self import Attributes, BrokerOperations, SelfHop
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

MONITOR_CLASS: Final = "BROKER_MONITOR"
INFO_CLASS: Final = "BROKER_INFO"
TRACE_CLASS: Final = "TRACEROUTE_MESSAGE"
ANSWER_CLASS: Final = "MSG_SET_DELIVERY_CLASS"
#: Entries per response, and bytes of a BROKER_INFO.
MAX_LISTED: Final = 1000
MAX_ANSWER_BYTES: Final = 128 * 1024
#: The least time between two rates.
_MIN_INTERVAL: Final = 0.001

_log = getLogger("penstock")


class BrokerMonitor:
    def __init__(
        self,
        self_hop: SelfHop,
        timers: Timers,
        heartbeats: Heartbeats,
        operations: BrokerOperations,
        *,
        uri: Callable[[], str] = str,
        interval: float = 0.0,
        full: bool = True,
    ) -> None:
        self._self_hop = self_hop
        self._timers = timers
        self._heartbeats = heartbeats
        self._operations = operations
        self._uri = uri
        self.interval = interval
        self._full = full
        self._timer: TimerHandle | None = None
        next_hops = self_hop.router.next_hops
        next_hops.tracer = self._trace
        next_hops.status_publisher = self.publish
        self._last_report = (next_hops.clock(), 0, 0)  # time and counters of the last report
        me = self_hop.broker_id
        self._commands: dict[str, Callable[[Attributes, bytes], None]] = {
            "SET_PUBLICATION_INTERVAL": self._set_interval,
            "STOP": lambda _attributes, _: next_hops.stop(),
            "RESUME": lambda _attributes, _: next_hops.resume(),
            "SHUTDOWN": self._shut_down,
            "PUBLISH_BROKER_INFO": lambda _attributes, _: self.publish(),
            "TRACE_PUBLICATION_MSG": partial(self._trace_next, EnvelopeKind.PUBLISH),
            "TRACE_SUBSCRIPTION_MSG": partial(self._trace_next, EnvelopeKind.SUBSCRIBE),
            "COMM_GET_ADV": partial(self._list, EnvelopeKind.ADVERTISE),
            "COMM_GET_SUB": partial(self._list, EnvelopeKind.SUBSCRIBE),
            "SET_FD_PARAMS": self._set_heartbeat,
        }
        self_hop.advertise(INFO_CLASS, f',[brokerID,eq,"{me}"]')
        self_hop.advertise(
            TRACE_CLASS, f',[from,eq,"{me}"],[to,isPresent,""],[TRACEROUTE_ID,isPresent,""]'
        )
        self_hop.advertise(ANSWER_CLASS, f',[brokerID,eq,"{me}"],[COMM_SESSION_ID,isPresent,""]')
        self_hop.subscribe(MONITOR_CLASS, f',[brokerID,eq,"{me}"]', self._on_command)
        self_hop.subscribe("NETWORK_DISCOVERY", "", lambda _attributes, _: self.publish())
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_command(self, attributes: Attributes, payload: bytes) -> None:
        command = str(attributes.get("command"))
        action = self._commands.get(command)
        if action is None:
            raise Unsupported(f"unknown command {command!r}: {', '.join(self._commands)}")
        action(attributes, payload)

    def _shut_down(self, attributes: Attributes, payload: bytes) -> None:
        self._self_hop.router.next_hops.publish_final_status("SHUTDOWN")
        self._operations.shutdown()

    def publish(self, status: str = "") -> None:
        """Publish the status. A stopped broker publishes none: it would be outdated when sent."""
        if self._self_hop.router.next_hops.stopped and not status:
            return
        status_fields = self.describe()
        status_fields["status"] = status or status_fields["status"]
        payload = json.dumps(status_fields).encode()
        if self._full and len(payload) > MAX_ANSWER_BYTES:  # `COMM_GET_…` returns long lists
            status_fields |= {
                name: len(status_fields[name]) for name in ("advertisements", "subscriptions")
            }
            payload = json.dumps(status_fields).encode()
        self._self_hop.publish(INFO_CLASS, {"brokerID": self._self_hop.broker_id}, payload)

    def describe(self) -> dict[str, Any]:
        """Rates are since the last report."""
        router = self._self_hop.router
        advertised = [one.envelope for one in router.tables.advertisements.values()]
        wanted = [one.envelope for one in router.tables.subscriptions.values()]
        neighbours = router.neighbours.values()
        return {
            "brokerID": self._self_hop.broker_id,
            "uri": self._uri(),
            "status": "STOPPED" if router.next_hops.stopped else "RUNNING",
            "debug": _log.isEnabledFor(DEBUG),
            "publication_interval": self.interval,
            "heartbeats": self._heartbeats.settings.enabled,
            "heartbeat": asdict(self._heartbeats.settings),
            "failures": list(self._heartbeats.failures),
            "input_queue_size": router.next_hops.waiting,
            "neighbours": sorted(router.neighbours),
            "links": {one.name: one.usable for one in neighbours},
            "link_messages": {one.name: one.traffic.total for one in neighbours},
            "clients": self._clients(),
            "advertisements": _list_envelopes(advertised) if self._full else len(advertised),
            "subscriptions": _list_envelopes(wanted) if self._full else len(wanted),
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
        router, ours = self._self_hop.router, f"{self._self_hop.broker_id}-"
        return sorted(
            name
            for name in router.hops
            if name not in router.neighbours
            and not RESERVED_HOP_NAMES.fullmatch(name.removeprefix(ours))
        )

    def _incoming(self) -> dict[str, float]:
        received = self._self_hop.router.received
        publications = received[EnvelopeKind.PUBLISH]
        control = sum(received.values()) - publications
        now = self._self_hop.router.next_hops.clock()
        before, published, controlled = self._last_report
        self._last_report = (now, publications, control)
        elapsed = max(now - before, _MIN_INTERVAL)
        return {
            "incoming_publications": publications,
            "incoming_control": control,
            "publication_rate": (publications - published) / elapsed,
            "control_rate": (control - controlled) / elapsed,
        }

    def _set_interval(self, attributes: Attributes, payload: bytes) -> None:
        self.interval = _number(attributes, "interval")
        self.stop()
        self._schedule()

    def _schedule(self) -> None:
        if self.interval > 0:
            self._timer = self._timers.later(self.interval, self._tick)

    def _tick(self) -> None:
        self.publish()
        self._schedule()

    def _list(self, kind: EnvelopeKind, attributes: Attributes, payload: bytes) -> None:
        tables = self._self_hop.router.tables
        if kind is EnvelopeKind.ADVERTISE:
            found = [one.envelope for one in tables.advertisements.values()]
        else:
            found = [one.envelope for one in tables.subscriptions.values()]
        session = str(attributes.get("COMM_SESSION_ID", ""))
        answer = {"brokerID": self._self_hop.broker_id, "COMM_SESSION_ID": session}
        for start in range(0, max(1, len(found)), MAX_LISTED):
            listed = _list_envelopes(found[start : start + MAX_LISTED])
            self._self_hop.publish(ANSWER_CLASS, answer, json.dumps(listed).encode())

    def _set_heartbeat(self, attributes: Attributes, payload: bytes) -> None:
        settings = self._heartbeats.settings
        if "enabled" in attributes:
            settings = replace(settings, enabled=str(attributes["enabled"]).lower() == "true")
        if "interval" in attributes:
            settings = replace(settings, interval=_number(attributes, "interval"))
        if "timeout" in attributes:
            settings = replace(settings, timeout=_number(attributes, "timeout"))
        if "threshold" in attributes:
            settings = replace(settings, threshold=int(_number(attributes, "threshold")))
        self._heartbeats.set(settings)

    def _trace_next(self, kind: EnvelopeKind, attributes: Attributes, payload: bytes) -> None:
        trace = attributes.get("TRACEROUTE_ID")
        if not isinstance(trace, str):
            raise PreconditionFailed("TRACEROUTE_ID is missing")
        self._self_hop.send(kind, payload.decode(errors="replace"), trace=trace)

    def _trace(self, envelope: PadresEnvelope, to: str) -> None:
        attributes = {"from": self._self_hop.broker_id, "to": to, "TRACEROUTE_ID": envelope.trace}
        self._self_hop.router.defer(partial(self._self_hop.publish, TRACE_CLASS, attributes))


def _list_envelopes(envelopes: list[PadresEnvelope]) -> dict[str, str]:
    return {one.id: one.text for one in envelopes}


def _number(attributes: Attributes, name: str) -> float:
    value = attributes.get(name)
    if not isinstance(value, (int, float)):
        raise PreconditionFailed(f"{name} must be a number")
    return float(value)
