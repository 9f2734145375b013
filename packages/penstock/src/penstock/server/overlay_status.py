"""The status of all brokers of an overlay, as seen by one of them.

As PADRES' monitor does, it discovers brokers (`NETWORK_DISCOVERY`), receives their reports
(`BROKER_INFO`) and sends them commands. To the router it is a hop like any other. The age of a
report shows which broker may be down.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import time
from typing import Any, Final

from penstock.broker.contract import ACCEPTED
from penstock.content.formatter import format_publication
from penstock.content.messages import Publication, Value
from penstock.content.parser import parse_publication
from penstock.overlay.router import OverlayRouter
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

_ADVERTISED: Final = (
    "[class,eq,NETWORK_DISCOVERY]",
    "[class,eq,GLOBAL_FD],[flag,isPresent,'']",
    "[class,eq,BROKER_CONTROL],[brokerID,isPresent,''],[command,isPresent,''],"
    "[broker,isPresent,'']",
)


class OverlayStatus:
    durable = False
    checked = False

    def __init__(self, router: OverlayRouter, calendar: Callable[[], float] = time) -> None:
        self.name = f"{router.broker_id}-monitor"
        self._router = router
        self._calendar = calendar
        self._reports: dict[str, dict[str, Any]] = {}
        router.attach(self)
        for text in _ADVERTISED:
            router.receive(self, PadresEnvelope(EnvelopeKind.ADVERTISE, text))
        router.receive(self, PadresEnvelope(EnvelopeKind.SUBSCRIBE, "[class,eq,BROKER_INFO]"))

    def deliver(self, envelope: PadresEnvelope) -> int:
        """Only reports that a broker published about itself are accepted."""
        broker = parse_publication(envelope.text).attributes.get("brokerID")
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

    def set_heartbeats(self, enabled: bool) -> None:
        """Of all brokers."""
        self._publish("GLOBAL_FD", {"flag": "true" if enabled else "false"})

    def _publish(self, class_name: str, attributes: dict[str, Value]) -> None:
        text = format_publication(Publication(class_name, attributes))
        self._router.receive(self, PadresEnvelope(EnvelopeKind.PUBLISH, text, durable=False))


def _decode_status(payload: bytes) -> dict[str, Any] | None:
    """None if it is not a JSON object: other implementations may have other reports."""
    try:
        status = json.loads(payload)
    except ValueError:
        return None
    return status if isinstance(status, dict) else None
