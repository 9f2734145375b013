"""`/api/vhosts`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from penstock.broker.permissions import Permission
from penstock.broker.user import tags_from_json
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import AccessRefused, NotFound
from penstock.server.management.call import Call, Level, text_in
from penstock.server.management.http import CREATED, DONE, Response
from penstock.server.management.listing import listed, shown
from penstock.server.management.overview import node_name
from penstock.server.management.routing import Route

EVERYTHING: Final = Permission(".*", ".*", ".*")


def describe(call: Call, vhost: VirtualHost) -> dict[str, Any]:
    kept = dict(call.broker.topology.all("vhost")).get(("vhost", vhost.name), {})
    metadata = {"description": "", "tags": [], **kept}
    queues = [queue.describe() for queue in vhost.queues.values()]
    ready = sum(queue["messages_ready"] for queue in queues)
    unanswered = sum(queue["messages_unacknowledged"] for queue in queues)
    return {
        "name": vhost.name,
        "description": metadata["description"],
        "tags": metadata["tags"],
        "metadata": metadata,
        "default_queue_type": "classic",
        "tracing": False,
        "cluster_state": {node_name(call.broker): "running"},
        "messages": ready + unanswered,
        "messages_ready": ready,
        "messages_unacknowledged": unanswered,
    }


def _visible(call: Call) -> list[VirtualHost]:
    """Who monitors sees all, others what they may enter."""
    if call.allows(Level.MONITORING):
        return list(call.broker.vhosts.values())
    return call.vhosts()


async def list_vhosts(call: Call) -> Response:
    return await listed(call, (describe(call, vhost) for vhost in _visible(call)))


async def get_vhost(call: Call) -> Response:
    vhost = call.broker.vhosts.get(call.name)
    if vhost is None:
        raise NotFound(f"no vhost '{call.name}'")
    if vhost not in _visible(call):
        raise AccessRefused("User not authorised to access virtual host")
    return shown(call, describe(call, vhost))


async def put_vhost(call: Call) -> Response:
    """A new one belongs to whoever made it, as in RabbitMQ."""
    body = await call.body()
    broker = call.broker
    is_new = call.name not in broker.vhosts
    broker.add_vhost(call.name)
    if is_new or body:
        metadata = {
            "description": text_in(body, "description"),
            "tags": list(tags_from_json(body.get("tags", []), "tags")),
        }
        broker.topology.put(("vhost", call.name), metadata)
    call.done()
    if not is_new:
        return DONE
    await asyncio.to_thread(broker.users.set_permissions, call.user.name, call.name, EVERYTHING)
    return CREATED


async def delete_vhost(call: Call) -> Response:
    broker = call.broker
    broker.delete_vhost(call.name)
    call.done()
    for user in broker.users.all():
        if call.name in user.permissions:
            await asyncio.to_thread(broker.users.clear_permissions, user.name, call.name)
        if call.name in user.topic_permissions:
            await asyncio.to_thread(broker.users.clear_topic_permissions, user.name, call.name)
    return DONE


routes: Final = (
    Route("GET", "/api/vhosts", Level.MANAGEMENT, list_vhosts),
    Route("GET", "/api/vhosts/{name}", Level.MANAGEMENT, get_vhost),
    Route("PUT", "/api/vhosts/{name}", Level.ADMINISTRATOR, put_vhost),
    Route("DELETE", "/api/vhosts/{name}", Level.ADMINISTRATOR, delete_vhost),
)
