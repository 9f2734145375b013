"""A connection as management shows it, under RabbitMQ's field names; its sessions are channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.terminals.amqp10.inlet import Inlet

if TYPE_CHECKING:
    from penstock.terminals.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.session import Session


def describe_connection(terminal: Amqp10Terminal) -> dict[str, Any]:
    opened = terminal.opened
    remote = terminal.connection.remote
    said = (remote.properties if remote else None) or {}
    return {
        "name": terminal.name,
        "protocol": "AMQP 1.0",
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": len(terminal.connection.sessions),
        "channel_max": terminal.connection.channel_max,
        "frame_max": terminal.connection.remote_frame_max,
        "timeout": int(terminal.lifesigns.interval),
        "container_id": remote.container_id if remote else "",
        "client_properties": {
            str(key): value for key, value in said.items() if isinstance(value, str | int | float)
        },
        "state": "blocked" if terminal.intake.blocked else "running" if opened else "starting",
    }


def describe_session(terminal: Amqp10Terminal, session: Session) -> dict[str, Any]:
    inlets = [link.context for link in session.links if isinstance(link.context, Inlet)]
    outlets = [one for one in terminal.outflow.outlets if one.link.session is session]
    return {
        "name": f"{terminal.name} ({session.channel})",
        "number": session.channel,
        "user": terminal.access.user.name,
        "vhost": terminal.vhost.name,
        "connection_details": {"name": terminal.name},
        "consumer_count": len(outlets),
        "messages_unacknowledged": len(session.outgoing),
        "messages_unconfirmed": sum(inlet.unsettled for inlet in inlets),
        "prefetch_count": 0,
        "global_prefetch_count": 0,
        "confirm": bool(inlets),
        "transactional": False,
        "state": "running",
    }


def describe_consumers(terminal: Amqp10Terminal) -> list[dict[str, Any]]:
    return [
        {
            "consumer_tag": outlet.link.name,
            "queue": {"name": outlet.queue, "vhost": terminal.vhost.name},
            "channel_details": {
                "name": f"{terminal.name} ({outlet.link.session.channel})",
                "number": outlet.link.session.channel,
            },
            "ack_required": not outlet.presettled,
            "prefetch_count": max(0, outlet.link.credit),
            "exclusive": False,
            "arguments": {key: str(value) for key, value in outlet.arguments.items()},
        }
        for outlet in terminal.outflow.outlets
    ]
