"""A connection as management shows it, under RabbitMQ's field names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.terminals.padres.mailbox import PREFIX

if TYPE_CHECKING:
    from penstock.terminals.padres.terminal import PadresTerminal


def describe_connection(terminal: PadresTerminal) -> dict[str, Any]:
    opened = terminal.opened
    blocked = terminal.opened and terminal.intake.blocked  # who has gone has no intake
    return {
        "name": terminal.name,
        "protocol": "PADRES",
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": 0,
        "channel_max": 0,
        "frame_max": terminal.reader.largest,
        "timeout": terminal.lifesigns.interval,
        "client_properties": {"client_id": terminal.client_id, "product": terminal.software},
        "state": "blocked" if blocked else "running" if opened else "starting",
    }


def describe_consumers(terminal: PadresTerminal) -> list[dict[str, Any]]:
    if not terminal.opened or terminal.outflow.channel is None:
        return []
    return [
        {
            "consumer_tag": terminal.client_id,
            "queue": {"name": PREFIX + terminal.mailbox.name, "vhost": terminal.vhost.name},
            "channel_details": {"name": terminal.name},
            "ack_required": True,
            "prefetch_count": 0,
            "exclusive": True,
            "arguments": {},
        }
    ]
