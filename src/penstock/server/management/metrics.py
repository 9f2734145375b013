"""`/metrics` for Prometheus: the broker's figures, and apart from them those of each queue.

`/metrics` needs no password: it has totals only. `/metrics/detailed` names virtual hosts and
queues, so it asks for a user with the tag `monitoring`; Prometheus sends one by `basic_auth`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from penstock.server.management.call import Call, Level, in_slices
from penstock.server.management.http import Response
from penstock.server.management.routing import Route

_TEXT: Final = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}

#: A figure of a queue: its field in `describe`, its name outside, and what it means.
QUEUE_FIGURES: Final = (
    ("messages_ready", "queue_messages_ready", "Messages waiting in the queue."),
    ("messages_unacknowledged", "queue_messages_unacknowledged", "Delivered, not yet answered."),
    ("consumers", "queue_consumers", "Consumers of the queue."),
    ("memory", "queue_memory_bytes", "Memory that the queue's messages take."),
    ("message_bytes_ready", "queue_message_bytes_ready", "Bodies waiting in the queue."),
    ("next_offset", "stream_next_offset", "The offset the stream's next message gets."),
    ("first_offset", "stream_first_offset", "The oldest offset the stream keeps."),
)


async def metrics(call: Call) -> Response:
    return Response(200, call.broker.kernel.metrics.exposition(), _TEXT)


async def detailed(call: Call) -> Response:
    wanted = call.request.query.get("vhost")
    return Response(200, _by_queue(call, wanted), _TEXT)


async def _by_queue(call: Call, wanted: str | None) -> AsyncIterator[bytes]:
    for field, name, meaning in QUEUE_FIGURES:
        lines = [f"# HELP penstock_{name} {meaning}", f"# TYPE penstock_{name} gauge"]
        for vhost in list(call.broker.vhosts.values()):
            if wanted is not None and vhost.name != wanted:
                continue
            async for queue in in_slices(list(vhost.queues.values())):
                value = queue.describe().get(field)
                if value is not None:
                    labels = f'vhost="{_escaped(vhost.name)}",queue="{_escaped(queue.name)}"'
                    lines.append(f"penstock_{name}{{{labels}}} {value}")
        yield ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


routes: Final = (
    Route("GET", "/metrics", Level.ANYONE, metrics),
    Route("GET", "/metrics/detailed", Level.MONITORING, detailed),
    Route("GET", "/metrics/per-object", Level.MONITORING, detailed),
)
