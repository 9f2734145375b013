"""A connection as management shows it, under RabbitMQ's field names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.terminals.amqp091.channel import AmqpChannel
    from penstock.terminals.amqp091.terminal import Amqp091Terminal


def describe_connection(terminal: Amqp091Terminal) -> dict[str, Any]:
    opened = terminal.opened
    blocked = terminal.intake.blocked
    return {
        "name": terminal.name,
        "protocol": "AMQP 0-9-1",
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": len(terminal.channels),
        "channel_max": terminal.channel_max,
        "frame_max": terminal.frame_max,
        "timeout": terminal.lifesigns.interval,
        "client_properties": terminal.client_properties,
        "state": "blocked" if blocked else "running" if opened else "starting",
    }


def describe_channel(terminal: Amqp091Terminal, channel: AmqpChannel) -> dict[str, Any]:
    return {
        "name": f"{terminal.name} ({channel.number})",
        "number": channel.number,
        "user": terminal.access.user.name,
        "vhost": terminal.vhost.name,
        "connection_details": {"name": terminal.name},
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": len(channel.unanswered),
        "messages_unconfirmed": channel.confirms.outstanding(channel.published),
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.global_prefetch,
        "confirm": channel.confirm,
        "transactional": channel.transaction is not None,
        "state": "running",
    }


def describe_consumers(terminal: Amqp091Terminal) -> list[dict[str, Any]]:
    return [
        {
            "consumer_tag": consumer.tag,
            "queue": {"name": consumer.queue, "vhost": terminal.vhost.name},
            "channel_details": {"name": f"{terminal.name} ({number})", "number": number},
            "ack_required": not consumer.settled,
            "prefetch_count": consumer.prefetch,
            "exclusive": consumer.exclusive,
            "arguments": consumer.arguments,
        }
        for number, channel in terminal.channels.items()
        for consumer in channel.consumers.values()
    ]
