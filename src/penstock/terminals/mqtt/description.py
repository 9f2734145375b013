"""A connection as management shows it, under RabbitMQ's field names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.terminals.mqtt.terminal import MqttTerminal

NAMES: Final = {3: "MQTT 3.1", 4: "MQTT 3.1.1", 5: "MQTT 5.0"}


def describe_connection(terminal: MqttTerminal) -> dict[str, Any]:
    opened = terminal.opened
    blocked = terminal.opened and terminal.intake.blocked  # who has gone has no intake
    return {
        "name": terminal.name,
        "protocol": NAMES.get(terminal.version, "MQTT"),
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": 0,
        "channel_max": 0,
        "frame_max": 0,
        "timeout": terminal.keep_alive,
        "client_properties": {"client_id": terminal.client_id},
        "variable_map": {"client_id": terminal.client_id},
        "state": "blocked" if blocked else "running" if opened else "starting",
    }


def describe_consumers(terminal: MqttTerminal) -> list[dict[str, Any]]:
    session = terminal.session
    if session is None:
        return []
    return [
        {
            "consumer_tag": terminal.client_id,
            "queue": {"name": session.name, "vhost": terminal.vhost.name},
            "channel_details": {"name": terminal.name},
            "ack_required": True,
            "prefetch_count": 0,
            "exclusive": True,
            "arguments": {},
        }
    ]
