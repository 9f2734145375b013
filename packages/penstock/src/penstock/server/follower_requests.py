"""Requests to `/api/cluster` and `/metrics` that a follower answers, because it has no broker."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import TYPE_CHECKING, Any

from penstock.broker.users import Users
from penstock.cluster.coordinator import Coordinator
from penstock.cluster.forwarder import LocalRequest
from penstock.core.addresses import is_loopback, parse_address
from penstock.core.errors import AuthenticationFailed
from penstock.core.metrics import Metrics
from penstock.core.resources import disk_free, memory_used

if TYPE_CHECKING:
    from penstock.server.cluster_member import ClusterMember


class FollowerRequests:
    def __init__(self, owner: ClusterMember) -> None:
        self._owner = owner
        self._metrics = owner.metrics
        self._metrics.on_scrape(self._refresh)

    async def answer(self, request: LocalRequest) -> tuple[int, dict[str, Any] | bytes]:
        if request.path == "/metrics":
            return 200, self._metrics.exposition()
        if request.path.startswith("/metrics/"):
            return 200, b""  # of queues, which are the leader's
        return await self._answer(request)

    def _refresh(self, metrics: Metrics) -> None:
        owner = self._owner
        metrics.memory_used = memory_used()
        metrics.disk_free = disk_free(owner.data)
        metrics.cluster_epoch = owner.member.epoch
        metrics.cluster_member_in_sync = int(owner.is_in_sync)
        metrics.cluster_lag_bytes = owner.progress.waiting_bytes
        metrics.cluster_lag_seconds = owner.progress.lag_seconds
        metrics.cluster_forwarded = owner.forwarded_connections

    async def _answer(self, request: LocalRequest) -> tuple[int, dict[str, Any]]:
        try:
            await self._authenticate(request)
            match request.method, request.path:
                case "GET", "/api/cluster":
                    return 200, self._owner.describe()
                case "POST", "/api/cluster/promote":
                    return await self._promote(request)
            return 404, {"error": "not_found", "reason": "Not Found"}
        except AuthenticationFailed as error:
            return 401, {"error": "not_authorized", "reason": str(error)}

    async def _authenticate(self, request: LocalRequest) -> None:
        """An administrator of the copied users."""
        path = self._owner.data / "users.json"
        if not path.exists():
            if is_loopback(request.peer):
                return  # nothing is copied yet: there is nothing to protect
            raise AuthenticationFailed("no users are copied yet")
        users = Users(path)
        users.load()
        user = await users.authenticate(request.user, request.password, address=request.peer)
        if "administrator" not in user.tags:
            raise AuthenticationFailed("Not administrator user")

    async def _promote(self, request: LocalRequest) -> tuple[int, dict[str, Any]]:
        force = bool(request.body.get("force"))
        leader = self._owner.follows()
        if self._owner.coordinator is not None:
            return await self._promote_by_coordinator(self._owner.coordinator, request, force)
        if leader and not force:
            reason = (
                f"{leader} leads and is connected: stop it first; two leaders would diverge. "
                "With --force this member leads all the same"
            )
            return 409, {"error": "conflict", "reason": reason}
        if self._owner.member.copying and not force:
            reason = "the copy is not complete: promote another member, or lose the rest (--force)"
            return 409, {"error": "conflict", "reason": reason}
        self._owner.promote()
        return 200, {"node": self._owner.member.node, "epoch": self._owner.member.epoch + 1}

    async def _promote_by_coordinator(
        self, coordinator: Coordinator, request: LocalRequest, force: bool
    ) -> tuple[int, dict[str, Any]]:
        try:
            view = await coordinator.view()
            if view.leader is None:
                if not force:
                    reason = "nobody leads, and an in-sync member will; --force makes it this one"
                    return 409, {"error": "conflict", "reason": reason}
                if not await coordinator.force():
                    reason = "another member leads by now: see `penstock cluster status`"
                    return 409, {"error": "conflict", "reason": reason}
                self._owner.member.set_copying(False)
                return 200, {"node": self._owner.member.node, "epoch": view.epoch + 1}
        except OSError as error:
            return 503, {"error": "service_unavailable", "reason": str(error)}
        if view.in_sync is not None and self._owner.member.node not in view.in_sync:
            reason = (
                f"{self._owner.member.node} is not in sync: promote one of {sorted(view.in_sync)}"
            )
            return 409, {"error": "conflict", "reason": reason}
        address = next((one for one in view.leader.addresses if one.startswith("http:")), "")
        if not address:
            return 409, {"error": "conflict", "reason": "the leader has no http listener"}
        status, answer = await asyncio.to_thread(_ask_to_resign, address, request.authorization)
        return status, answer | {"node": self._owner.member.node}


def _ask_to_resign(address: str, authorization: str) -> tuple[int, dict[str, Any]]:
    parts = parse_address(address)
    connection = http.client.HTTPConnection(parts.host, parts.port, timeout=5)
    try:
        headers = {"Authorization": authorization, "Content-Length": "0"}
        connection.request("POST", "/api/cluster/resign", headers=headers)
        response = connection.getresponse()
        content = response.read()
        return response.status, dict(json.loads(content)) if content else {}
    except (OSError, ValueError, http.client.HTTPException) as error:
        return 503, {"error": "service_unavailable", "reason": f"the leader: {error}"}
    finally:
        connection.close()
