"""`/api/cluster`: who leads, who is in sync, and how far followers are behind.

A follower answers these requests itself (`server/cluster_member.py`).
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import NotFound, PreconditionFailed
from penstock.server.broker import LeadingMember
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    required_fields,
)
from penstock.server.management.http import NO_CONTENT, HttpResponse, json_response


def _member(call: ApiCall) -> LeadingMember:
    if call.broker.cluster is None:
        raise NotFound("this broker is not in a cluster: start it with --cluster or --follow")
    return call.broker.cluster


async def show(call: ApiCall) -> HttpResponse:
    """The members of the cluster: who leads, who is in sync, and how far followers are behind."""
    return json_response(_member(call).describe())


async def promote(call: ApiCall) -> HttpResponse:
    """Make the member that receives the call the leader; the leader refuses the call."""
    node = _member(call).describe()["node"]
    raise PreconditionFailed(f"{node} leads already: ask the member that should lead")


async def resign(call: ApiCall) -> HttpResponse:
    """End this member's leadership, so that another in-sync member takes over."""
    member = _member(call)
    found = member.describe()
    if found["coordinator"] == "manual":
        raise PreconditionFailed("without etcd or PostgreSQL: stop this member, promote another")
    if len(found["in_sync"]) < 2:
        raise PreconditionFailed("no other member is in sync: nobody could lead")
    member.resign()
    return NO_CONTENT


async def leave(call: ApiCall) -> HttpResponse:
    """Remove a stopped member (`node`) from the cluster."""
    member = _member(call)
    [node] = required_fields(await call.body(), "node")
    found = member.describe()
    if node == found["node"]:
        raise PreconditionFailed(f"{node} leads: promote another member first")
    known = {one["node"]: one for one in found["members"]}
    if node not in known:
        raise NotFound(f"no member '{node}'")
    if known[node]["connected"]:
        raise PreconditionFailed(f"{node} is connected: stop it first")
    member.remove(node)
    return NO_CONTENT


routes: Final = (
    ApiRoute("GET", "/api/cluster", show, AccessLevel.MONITORING),
    ApiRoute("POST", "/api/cluster/promote", promote, AccessLevel.ADMINISTRATOR),
    ApiRoute("POST", "/api/cluster/resign", resign, AccessLevel.ADMINISTRATOR),
    ApiRoute("POST", "/api/cluster/leave", leave, AccessLevel.ADMINISTRATOR),
)
