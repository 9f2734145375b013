"""`/api/vhosts`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from penstock.broker.permissions import Permission
from penstock.broker.user import tags_from_json
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import AccessRefused, NotFound
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    flag_field,
    text_field,
)
from penstock.server.management.http import CREATED, NO_CONTENT, HttpResponse
from penstock.server.management.list_query import item_response, named_list_response
from penstock.server.management.overview import node_name

FULL_PERMISSION: Final = Permission(".*", ".*", ".*")


def describe_vhost(call: ApiCall, vhost: VirtualHost) -> dict[str, Any]:
    stored = call.broker.topology.get(("vhost", vhost.name)) or {}
    metadata = {"description": "", "tags": [], **stored}
    queues = [queue.describe() for queue in vhost.queues.values()]
    ready = sum(queue["messages_ready"] for queue in queues)
    unacknowledged = sum(queue["messages_unacknowledged"] for queue in queues)
    return {
        "name": vhost.name,
        "description": metadata["description"],
        "tags": metadata["tags"],
        "metadata": metadata,
        "default_queue_type": "classic",
        "limits": dict(vhost.policies.limits),
        "tracing": call.broker.tracer(vhost).firehose,
        "cluster_state": {node_name(call.broker): "running"},
        "messages": ready + unacknowledged,
        "messages_ready": ready,
        "messages_unacknowledged": unacknowledged,
    }


def _visible(call: ApiCall) -> list[VirtualHost]:
    """All for users with the tag `monitoring`, otherwise those with access."""
    if call.allows(AccessLevel.MONITORING):
        return list(call.broker.vhosts.values())
    return call.vhosts()


async def list_vhosts(call: ApiCall) -> HttpResponse:
    """List virtual hosts."""
    return await named_list_response(call, _visible(call), partial(describe_vhost, call))


async def get_vhost(call: ApiCall) -> HttpResponse:
    """Describe a virtual host."""
    vhost = call.broker.vhosts.get(call.name)
    if vhost is None:
        raise NotFound(f"no vhost '{call.name}'")
    if vhost not in _visible(call):
        raise AccessRefused("User not authorised to access virtual host")
    return item_response(call, describe_vhost(call, vhost))


async def put_vhost(call: ApiCall) -> HttpResponse:
    """Create a virtual host, or change it; the user gets all permissions on a new one."""
    body = await call.body()
    broker = call.broker
    is_new = call.name not in broker.vhosts
    vhost = broker.add_vhost(call.name)
    if "tracing" in body:
        broker.tracer(vhost).set_firehose(flag_field(body, "tracing"))
    if is_new or body.keys() - {"tracing", "name"}:
        metadata = {
            "description": text_field(body, "description"),
            "tags": list(tags_from_json(body.get("tags", []), "tags")),
        }
        broker.topology.put(("vhost", call.name), metadata)
    call.done()
    if not is_new:
        return NO_CONTENT
    if not call.user.origin:  # the permissions of others are not ours to change
        await asyncio.to_thread(
            broker.users.set_permissions, call.user.name, call.name, FULL_PERMISSION
        )
    return CREATED


async def delete_vhost(call: ApiCall) -> HttpResponse:
    """Delete a virtual host with its queues, exchanges and permissions."""
    broker = call.broker
    broker.delete_vhost(call.name)
    call.done()
    for user in broker.users.all():
        if call.name in user.permissions:
            await asyncio.to_thread(broker.users.clear_permissions, user.name, call.name)
        if call.name in user.topic_permissions:
            await asyncio.to_thread(broker.users.clear_topic_permissions, user.name, call.name)
    return NO_CONTENT


routes: Final = (
    ApiRoute("GET", "/api/vhosts", list_vhosts),
    ApiRoute("GET", "/api/vhosts/{name}", get_vhost),
    ApiRoute("PUT", "/api/vhosts/{name}", put_vhost, AccessLevel.ADMINISTRATOR),
    ApiRoute("DELETE", "/api/vhosts/{name}", delete_vhost, AccessLevel.ADMINISTRATOR),
)
