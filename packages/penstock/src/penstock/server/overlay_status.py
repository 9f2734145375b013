"""The status of all brokers of an overlay, as seen by one of them.

As PADRES' monitor does, it discovers brokers (`NETWORK_DISCOVERY`), receives their reports
(`BROKER_INFO`) and sends them commands. To the router it is a hop like any other. The age of a
report shows which broker may be down.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from time import time
from typing import Any, Final

from penstock.broker.contract import ACCEPTED
from penstock.content.formatter import format_publication
from penstock.content.messages import Publication, Value
from penstock.content.parser import parse_advertisement, parse_publication, parse_subscription
from penstock.core.errors import NotFound
from penstock.overlay.heartbeats import HeartbeatSettings
from penstock.overlay.router import OverlayRouter
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

_ADVERTISED: Final = (
    "[class,eq,NETWORK_DISCOVERY]",
    "[class,eq,GLOBAL_FD],[flag,isPresent,'']",
    "[class,eq,BROKER_CONTROL],[brokerID,isPresent,''],[command,isPresent,''],"
    "[broker,isPresent,''],[INJECTION_ID,isPresent,''],[TRACEROUTE_ID,isPresent,'']",
    "[class,eq,BROKER_MONITOR],[brokerID,isPresent,''],[command,isPresent,''],"
    "[enabled,isPresent,''],[interval,isPresent,0],[timeout,isPresent,0],[threshold,isPresent,0]",
)
#: Commands that inject a message, and how the message is parsed.
INJECTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "publish": ("INJECT_PUB", parse_publication),
    "subscribe": ("INJECT_SUB", parse_subscription),
    "advertise": ("INJECT_ADV", parse_advertisement),
    "unsubscribe": ("INJECT_UNSUB", str),
    "unadvertise": ("INJECT_UNADV", str),
}
#: Traces that are remembered, and hops of each.
MAX_TRACES: Final = 100
MAX_HOPS: Final = 200


class OverlayStatus:
    durable = False
    checked = False

    def __init__(self, router: OverlayRouter, calendar: Callable[[], float] = time) -> None:
        self.name = f"{router.broker_id}-monitor"
        self._router = router
        self._calendar = calendar
        self._reports: dict[str, dict[str, Any]] = {}
        #: The broker where a traced message began, and its hops.
        self._traces: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        router.attach(self)
        for text in _ADVERTISED:
            router.receive(self, PadresEnvelope(EnvelopeKind.ADVERTISE, text))
        for name in ("BROKER_INFO", "TRACEROUTE_MESSAGE"):
            router.receive(self, PadresEnvelope(EnvelopeKind.SUBSCRIBE, f"[class,eq,{name}]"))

    def deliver(self, envelope: PadresEnvelope) -> int:
        """Only reports that a broker published about itself are accepted."""
        publication = parse_publication(envelope.text)
        if publication.class_name == "TRACEROUTE_MESSAGE":
            self._on_hop(envelope.source, publication.attributes)
            return ACCEPTED
        broker = publication.attributes.get("brokerID")
        if envelope.source == f"{broker}-broker":
            report = _decode_status(envelope.payload)
            if report is not None:
                self._reports[str(broker)] = {**report, "heard": self._calendar()}
        return ACCEPTED

    def reports(self) -> list[dict[str, Any]]:
        """The last reports, by broker id; requests new ones for the next call."""
        self._publish("NETWORK_DISCOVERY", {})
        now = self._calendar()
        return [
            {**report, "age": max(0.0, now - report["heard"])}
            for _, report in sorted(self._reports.items())
        ]

    def send_command(self, broker: str, command: str, other: str = "") -> None:
        """The outcome is in the next report of the broker."""
        attributes: dict[str, Value] = {"brokerID": broker, "command": command}
        if other:
            attributes["broker"] = other
        self._publish("BROKER_CONTROL", attributes)

    def _on_hop(self, source: str, attributes: Mapping[str, object]) -> None:
        found = self._traces.get(str(attributes.get("TRACEROUTE_ID")))
        broker = attributes.get("from")
        if found is not None and source == f"{broker}-broker" and len(found[1]) < MAX_HOPS:
            found[1].append({"from": broker, "to": attributes.get("to"), "time": self._calendar()})

    def set_heartbeats(self, enabled: bool) -> None:
        """Of all brokers."""
        self._publish("GLOBAL_FD", {"flag": "true" if enabled else "false"})

    def set_heartbeat(self, broker: str, settings: HeartbeatSettings) -> None:
        """Of one broker."""
        attributes: dict[str, Value] = {
            "brokerID": broker,
            "command": "SET_FD_PARAMS",
            "enabled": "true" if settings.enabled else "false",
            "interval": settings.interval,
            "timeout": settings.timeout,
            "threshold": settings.threshold,
        }
        self._publish("BROKER_MONITOR", attributes)

    def inject(self, broker: str, kind: str, text: str, name: str = "") -> str:
        """Send a message as a broker, and trace it; returns the id of the trace. A subscription or
        advertisement is withdrawn by the name it was injected with."""
        command, parse = INJECTIONS[kind]
        parse(text)
        trace = f"{self._router.broker_id}-trace-{uuid.uuid4().hex[:12]}"
        self._traces[trace] = (broker, [])
        while len(self._traces) > MAX_TRACES:
            del self._traces[next(iter(self._traces))]
        attributes: dict[str, Value] = {
            "brokerID": broker,
            "command": f"INJECTION-{command}",
            "TRACEROUTE_ID": trace,
        }
        if name:
            attributes["INJECTION_ID"] = name
        self._publish("BROKER_CONTROL", attributes, text.encode())
        return trace

    def trace(self, name: str) -> list[dict[str, Any]]:
        """The hops in the order of the message's way; they are reported in any order."""
        if name not in self._traces:
            raise NotFound(f"no trace '{name}'")
        start, hops = self._traces[name]
        depth = {start: 0}
        for _ in hops:
            for hop in hops:
                if hop["from"] in depth:
                    depth.setdefault(hop["to"], depth[hop["from"]] + 1)
        return sorted(hops, key=lambda hop: depth.get(hop["from"], len(hops)))

    def _publish(self, class_name: str, attributes: dict[str, Value], payload: bytes = b"") -> None:
        text = format_publication(Publication(class_name, attributes))
        envelope = PadresEnvelope(EnvelopeKind.PUBLISH, text, payload=payload, durable=False)
        self._router.receive(self, envelope)


def _decode_status(payload: bytes) -> dict[str, Any] | None:
    """None if it is not a JSON object: other implementations may have other reports."""
    try:
        status = json.loads(payload)
    except ValueError:
        return None
    return status if isinstance(status, dict) else None
