"""A session as management shows it: a queue that is its client's alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.drivers.session.session import Session
    from penstock.drivers.session.waiting import Waiting


def describe(session: Session, waiting: Waiting) -> dict[str, Any]:
    ready, out = waiting.count, len(session.letters)
    return {
        "name": session.name,
        "vhost": session.vhost.name,
        "type": session.type,
        "durable": session.durable,
        "auto_delete": False,
        "exclusive": True,
        "arguments": session.arguments,
        "state": "running",
        "messages_ready": ready,
        "messages_unacknowledged": out,
        "messages": ready + out,
        "message_bytes_ready": waiting.bytes,
        "memory": waiting.memory,
        "consumers": session.consumer_count,
        "single_active_consumer_tag": None,
    }
