"""`/api/users`, `/api/permissions`, `/api/topic-permissions`.

Changes wait for the disk and hash passwords, so they run in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from penstock.broker.permissions import Permission, TopicPermission
from penstock.broker.user import tags_from_json
from penstock.core.errors import NotFound
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    required_fields,
    text_field,
)
from penstock.server.management.http import CREATED, NO_CONTENT, HttpResponse, bad_request
from penstock.server.management.list_query import Row, item_response, list_response


async def list_users(call: ApiCall) -> HttpResponse:
    """List users."""
    return await list_response(call, call.broker.users.export()["users"])


async def list_idle_users(call: ApiCall) -> HttpResponse:
    """List users without access to any virtual host."""
    idle = {user.name for user in call.broker.users.all() if not user.permissions}
    users = call.broker.users.export()["users"]
    return await list_response(call, [row for row in users if row["name"] in idle])


async def get_user(call: ApiCall) -> HttpResponse:
    """Describe a user."""
    call.broker.users.get(call.name)
    users = call.broker.users.export()["users"]
    return item_response(call, next(row for row in users if row["name"] == call.name))


async def put_user(call: ApiCall) -> HttpResponse:
    """Create or change a user. Without `password` or `password_hash` no login is possible."""
    body = await call.body()
    if "tags" not in body:
        raise bad_request("tags_not_present")
    users = call.broker.users
    is_new = call.name not in {user.name for user in users.all()}
    entry: dict[str, Any] = {
        "name": call.name,
        "tags": list(tags_from_json(body["tags"], "tags")),
        "password_hash": text_field(body, "password_hash"),
    }
    if "client_ids" in body:  # an extension; without it they do not change
        entry["client_ids"] = text_field(body, "client_ids")
    if "password" in body:
        entry["password"] = text_field(body, "password")
    if "hashing_algorithm" in body:
        entry["hashing_algorithm"] = body["hashing_algorithm"]
    await asyncio.to_thread(users.restore, {"users": [entry]})
    return CREATED if is_new else NO_CONTENT


async def delete_user(call: ApiCall) -> HttpResponse:
    """Delete a user."""
    await asyncio.to_thread(call.broker.users.delete, call.name)
    return NO_CONTENT


async def delete_users(call: ApiCall) -> HttpResponse:
    """Delete several users: `{"users": [name, …]}`."""
    names = (await call.body()).get("users", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("users: a list of names is expected")
    known = {user.name for user in call.broker.users.all()}
    for name in names:
        if name in known:
            await asyncio.to_thread(call.broker.users.delete, name)
    return NO_CONTENT


# Permissions.


def _permissions(call: ApiCall, kind: str = "permissions") -> Iterable[Row]:
    """Of the user and the virtual host in the path, if there are any."""
    exported = call.broker.users.export()[kind]
    vhost, user = call.names.get("vhost"), call.names.get("user")
    if user is not None and vhost is None:
        call.broker.users.get(user)
    if vhost is not None and vhost not in call.broker.vhosts:
        raise NotFound(f"no vhost '{vhost}'")
    return [
        row
        for row in exported
        if (vhost is None or row["vhost"] == vhost) and (user is None or row["user"] == user)
    ]


async def list_permissions(call: ApiCall) -> HttpResponse:
    """List permissions: all, or those of a user or a virtual host."""
    return await list_response(call, _permissions(call), ("user", "vhost"))


async def get_permissions(call: ApiCall) -> HttpResponse:
    """The permissions of a user in a virtual host."""
    rows = list(_permissions(call))
    if not rows:
        raise NotFound("Not Found")
    return item_response(call, rows[0])


def _check_ends(call: ApiCall) -> None:
    known = {user.name for user in call.broker.users.all()}
    if call.names["vhost"] not in call.broker.vhosts or call.names["user"] not in known:
        raise bad_request("vhost_or_user_not_found")


async def put_permissions(call: ApiCall) -> HttpResponse:
    """Set the permissions of a user in a virtual host: `configure`, `write`, `read`."""
    body = await call.body()
    _check_ends(call)
    configure, write, read = required_fields(body, "configure", "write", "read")
    _check_texts(configure, write, read)
    granted = Permission(configure, write, read)
    is_new = not _permissions(call)
    user, vhost = call.names["user"], call.names["vhost"]
    await asyncio.to_thread(call.broker.users.set_permissions, user, vhost, granted)
    return CREATED if is_new else NO_CONTENT


def _check_texts(*patterns: object) -> None:
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise bad_request(f"a regular expression is expected, not {pattern!r}")


async def delete_permissions(call: ApiCall) -> HttpResponse:
    """Remove the permissions of a user in a virtual host."""
    if not _permissions(call):
        raise NotFound("Not Found")
    user, vhost = call.names["user"], call.names["vhost"]
    await asyncio.to_thread(call.broker.users.clear_permissions, user, vhost)
    return NO_CONTENT


async def list_topic_permissions(call: ApiCall) -> HttpResponse:
    """List topic permissions: all, or those of a user or a virtual host."""
    rows = _permissions(call, "topic_permissions")
    return await list_response(call, rows, ("user", "vhost", "exchange"))


async def get_topic_permissions(call: ApiCall) -> HttpResponse:
    """The topic permissions of a user in a virtual host."""
    if not (rows := _permissions(call, "topic_permissions")):
        raise NotFound("Not Found")
    return await list_response(call, rows)


async def put_topic_permissions(call: ApiCall) -> HttpResponse:
    """Set the topic permissions of a user for an exchange: `exchange`, `write`, `read`."""
    body = await call.body()
    _check_ends(call)
    exchange, write, read = required_fields(body, "exchange", "write", "read")
    _check_texts(exchange, write, read)
    existing = [row["exchange"] for row in _permissions(call, "topic_permissions")]
    user, vhost = call.names["user"], call.names["vhost"]
    granted = TopicPermission(write, read)
    users = call.broker.users
    await asyncio.to_thread(users.set_topic_permissions, user, vhost, exchange, granted)
    return NO_CONTENT if exchange in existing else CREATED


async def delete_topic_permissions(call: ApiCall) -> HttpResponse:
    """Remove a user's topic permissions in a virtual host: all, or those for an exchange."""
    exchange = call.names.get("exchange")
    existing = [row["exchange"] for row in _permissions(call, "topic_permissions")]
    if not existing or (exchange is not None and exchange not in existing):
        raise NotFound("Not Found")
    user, vhost = call.names["user"], call.names["vhost"]
    await asyncio.to_thread(call.broker.users.clear_topic_permissions, user, vhost, exchange)
    return NO_CONTENT


_TOPICS: Final = "/api/topic-permissions"
_ROUTES: Final = (
    ("GET", "/api/users", list_users),
    ("GET", "/api/users/without-access", list_idle_users),
    ("POST", "/api/users/bulk-delete", delete_users),
    ("GET", "/api/users/{name}", get_user),
    ("PUT", "/api/users/{name}", put_user),
    ("DELETE", "/api/users/{name}", delete_user),
    ("GET", "/api/users/{user}/permissions", list_permissions),
    ("GET", "/api/users/{user}/topic-permissions", list_topic_permissions),
    ("GET", "/api/vhosts/{vhost}/permissions", list_permissions),
    ("GET", "/api/vhosts/{vhost}/topic-permissions", list_topic_permissions),
    ("GET", "/api/permissions", list_permissions),
    ("GET", "/api/permissions/{vhost}/{user}", get_permissions),
    ("PUT", "/api/permissions/{vhost}/{user}", put_permissions),
    ("DELETE", "/api/permissions/{vhost}/{user}", delete_permissions),
    ("GET", _TOPICS, list_topic_permissions),
    ("GET", f"{_TOPICS}/{{vhost}}/{{user}}", get_topic_permissions),
    ("PUT", f"{_TOPICS}/{{vhost}}/{{user}}", put_topic_permissions),
    ("DELETE", f"{_TOPICS}/{{vhost}}/{{user}}", delete_topic_permissions),
    ("DELETE", f"{_TOPICS}/{{vhost}}/{{user}}/{{exchange}}", delete_topic_permissions),
)

routes: Final = tuple(ApiRoute(*route, AccessLevel.ADMINISTRATOR) for route in _ROUTES)
