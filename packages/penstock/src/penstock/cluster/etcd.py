"""Coordination by etcd, through its JSON gateway.

Keys under `/penstock/NAME/`: `leader` (bound to a lease; its create revision is the epoch), `isr`,
`id`, `secret`. Keys and values are base64 in requests.
"""

from __future__ import annotations

import asyncio
import base64
import http
import http.client
import json
import math
import secrets
import uuid
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from penstock.cluster.coordinator import (
    ClusterView,
    LeaderRecord,
    Leadership,
    coordinator_threads,
)
from penstock.core.errors import ConfigurationError

#: Codes of gRPC: invalid argument (a wrong password, no user), permission denied, failed
#: precondition (a user, although etcd has none), unauthenticated.
_REFUSED: Final = frozenset({3, 7, 9, 16})
_UNAUTHENTICATED: Final = 401


class EtcdCoordinator:
    def __init__(self, url: str, node: str, lease: float) -> None:
        """`etcd://[user:password@]host:2379[,host:2379…]/NAME`"""
        parts = urlsplit(url)
        name = parts.path.strip("/")
        hosts = parts.netloc.rpartition("@")[2]
        if not name or "/" in name or not hosts:
            raise ConfigurationError(
                "broker.cluster.url: should be etcd://host:2379/NAME, the name of the cluster last"
            )
        self._hosts = [host if ":" in host else f"{host}:2379" for host in hosts.split(",")]
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")
        self._token = ""
        self._prefix = f"/penstock/{name}/"
        self._name = name
        self._node = node
        self._ttl = max(1, math.ceil(lease))
        self._timeout = max(0.3, lease / 3)
        self._lease = 0
        self._threads = coordinator_threads()

    async def identify(self, known: str) -> tuple[str, str]:
        found = await self._range()
        if "id" not in found:
            if known:
                raise ConfigurationError(
                    f"etcd has no cluster {self._name}, but the data directory belongs to cluster "
                    f"{known}: restore etcd's data, or delete cluster.json in the data directory "
                    "to found a new cluster with this data"
                )
            await self._txn(
                [_absent(self._prefix + "id")],
                [
                    self._put("id", uuid.uuid4().hex),
                    self._put("secret", secrets.token_urlsafe(32)),
                ],
            )
            found = await self._range()
        return found["id"]["value"], found["secret"]["value"]

    async def view(self) -> ClusterView:
        return _view(await self._range())

    async def campaign(self, record: LeaderRecord) -> Leadership | None:
        found = await self._range()
        view = _view(found)
        if view.leader is not None:
            return None
        if view.in_sync is not None and self._node not in view.in_sync:
            return None
        granted = await self._call("/v3/lease/grant", {"TTL": self._ttl})
        lease = int(granted["ID"])
        former = found.get("former", {}).get("value")
        members = frozenset({*(view.in_sync or ()), self._node}) - {former} | {self._node}
        unchanged = (
            _compare(self._prefix + "isr", "MOD", found["isr"]["modified"])
            if "isr" in found
            else _absent(self._prefix + "isr")
        )
        answer = await self._txn(
            [_absent(self._prefix + "leader"), unchanged],
            [
                self._put("leader", json.dumps(record.to_json()), lease),
                self._put("isr", json.dumps(sorted(members))),
                self._put("former", self._node),
            ],
        )
        if not answer.get("succeeded"):
            return None
        self._lease = lease
        return Leadership(int(answer["header"]["revision"]), members)

    async def renew(self, epoch: int) -> bool:
        answer = await self._call("/v3/lease/keepalive", {"ID": str(self._lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def record_in_sync(self, epoch: int, members: frozenset[str]) -> bool:
        answer = await self._txn(
            [_compare(self._prefix + "leader", "CREATE", epoch)],
            [self._put("isr", json.dumps(sorted(members)))],
        )
        return bool(answer.get("succeeded"))

    async def resign(self, epoch: int) -> None:
        await self._txn(
            [_compare(self._prefix + "leader", "CREATE", epoch)],
            [{"requestDeleteRange": {"key": _encode(self._prefix + "leader")}}],
        )

    async def force(self) -> bool:
        answer = await self._txn(
            [_absent(self._prefix + "leader")], [self._put("isr", json.dumps([self._node]))]
        )
        return bool(answer.get("succeeded"))

    # Requests.

    def _put(self, name: str, value: str, lease: int = 0) -> dict[str, Any]:
        put = {"key": _encode(self._prefix + name), "value": _encode(value)}
        return {"requestPut": {**put, "lease": str(lease)} if lease else put}

    async def _range(self) -> dict[str, dict[str, Any]]:
        end = self._prefix[:-1] + chr(ord("/") + 1)
        answer = await self._call(
            "/v3/kv/range", {"key": _encode(self._prefix), "range_end": _encode(end)}
        )
        found = {}
        for entry in answer.get("kvs", []):
            name = _decode(entry["key"]).removeprefix(self._prefix)
            found[name] = {
                "value": _decode(entry.get("value", "")),
                "created": int(entry["create_revision"]),
                "modified": int(entry["mod_revision"]),
            }
        return found

    async def _txn(
        self, compare: list[dict[str, Any]], success: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return await self._call("/v3/kv/txn", {"compare": compare, "success": success})

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of the first host that gives one."""
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        for _ in range(len(self._hosts)):
            try:
                return await loop.run_in_executor(
                    self._threads, self._request, self._hosts[0], path, body
                )
            except PermissionError:
                raise
            except OSError as error:
                failure = error
                self._hosts.append(self._hosts.pop(0))
        assert failure is not None
        raise failure

    def _request(self, host: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection(host, timeout=self._timeout)

        def post(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            headers = {"Content-Type": "application/json"}
            if self._token:
                headers["Authorization"] = self._token
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, _parsed(response.read(), response.status)

        try:
            status, answer = (
                post(path, body) if self._token or not self._user else (_UNAUTHENTICATED, {})
            )
            if status == _UNAUTHENTICATED and self._user:  # tokens end
                self._token = ""
                login = {"name": self._user, "password": self._password}
                status, answer = post("/v3/auth/authenticate", login)
                if status == http.HTTPStatus.OK:
                    self._token = answer["token"]
                    status, answer = post(path, body)
        except http.client.HTTPException as error:
            raise OSError(f"etcd at {host}: {error!r}") from error
        except OSError as error:
            raise OSError(f"etcd at {host}: {error}") from error
        finally:
            connection.close()
        if status == http.HTTPStatus.OK:
            return answer
        reason = answer.get("message") or answer.get("error")
        kind = PermissionError if answer.get("code") in _REFUSED else OSError
        raise kind(f"etcd at {host}: status {status}: {reason}")


def _parsed(content: bytes, status: int) -> dict[str, Any]:
    try:
        return dict(json.loads(content))
    except ValueError:
        raise OSError(f"status {status}, not JSON") from None


def _view(found: dict[str, dict[str, Any]]) -> ClusterView:
    leader = found.get("leader")
    in_sync = frozenset(json.loads(found["isr"]["value"])) if "isr" in found else None
    if leader is None:
        return ClusterView(None, 0, in_sync)
    record = LeaderRecord.from_json(json.loads(leader["value"]))
    return ClusterView(record, leader["created"], in_sync)


def _absent(key: str) -> dict[str, Any]:
    return _compare(key, "CREATE", 0)


def _compare(key: str, target: str, revision: int) -> dict[str, Any]:
    field = {"CREATE": "create_revision", "MOD": "mod_revision"}[target]
    return {"key": _encode(key), "target": target, "result": "EQUAL", field: str(revision)}


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()
