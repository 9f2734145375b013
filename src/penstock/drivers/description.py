"""A queue as management shows it, under RabbitMQ's field names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.drivers.queue import Queue


def describe_queue(queue: Queue) -> dict[str, Any]:
    active = queue.consumers.active if queue.limits.single_active else None
    return {
        "name": queue.name,
        "vhost": queue.vhost.name,
        "type": queue.type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "arguments": queue.arguments,
        "state": "running",
        "messages_ready": queue.ready,
        "messages_unacknowledged": queue.unanswered,
        "messages": queue.ready + queue.unanswered,
        "message_bytes_ready": queue.ready_bytes,
        "memory": queue.memory,
        "consumers": len(queue.consumers),
        "single_active_consumer_tag": getattr(active, "tag", None),
    }
