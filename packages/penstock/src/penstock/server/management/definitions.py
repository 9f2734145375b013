"""`/api/definitions`: export and import in the format of RabbitMQ's definition files.

An import validates the whole document first and then declares everything in slices. What exists is
not changed, except policies and parameters. Parameters of components that Penstock does not have
are skipped with a warning.

RabbitMQ cannot verify argon2 hashes. A user who has one is exported without a password hash, with
which nobody can log in at RabbitMQ, and with the hash in a field of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.broker.contract import Binding, Exchange, Queue
from penstock.broker.topology import pack_arguments
from penstock.broker.vhost import PREDECLARED_EXCHANGES, VirtualHost
from penstock.core.errors import NotFound, PenstockError
from penstock.core.logs import get_logger
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    flag_field,
    iterate_in_slices,
    table_field,
    text_field,
)
from penstock.server.management.http import (
    NO_CONTENT,
    ApiError,
    HttpResponse,
    bad_request,
    json_response,
)
from penstock.server.management.overview import RABBITMQ_VERSION
from penstock.server.management.policies import (
    COMPONENTS,
    check_parameter,
    global_parameters,
    parameters,
    parse_policy,
    set_parameter,
)

_log = get_logger("penstock.management")

#: Enough for a hundred thousand queues.
MAX_DEFINITIONS_BYTES: Final = 64 << 20
#: Smaller than for other objects, because a durable queue creates files.
QUEUES_PER_SLICE: Final = 20
#: The field of an argon2 hash, which RabbitMQ ignores.
ARGON2_FIELD: Final = "argon2_hash"

Definition = dict[str, Any]


async def import_all(call: ApiCall) -> HttpResponse:
    """Import definitions. Existing queues and exchanges stay; users and policies are replaced."""
    document = await _document(call)
    vhosts = [text_field(entry, "name") for entry in _entries(document, "vhosts")]
    known = {*call.broker.vhosts, *vhosts}
    plan = _plan(document, lambda entry: _vhost_of(entry, known))
    users = {
        "users": [_local(user) for user in _entries(document, "users")],
        "permissions": _entries(document, "permissions"),
        "topic_permissions": _entries(document, "topic_permissions"),
    }
    if any(users.values()):  # all or none
        await asyncio.to_thread(call.broker.users.restore, users)
    for name in vhosts:
        call.broker.add_vhost(name)
    for entry in _entries(document, "global_parameters"):
        key = ("global-parameter", text_field(entry, "name"))
        call.broker.topology.put(key, {"value": entry.get("value")})
    await _execute(call, plan)
    return NO_CONTENT


async def import_vhost(call: ApiCall) -> HttpResponse:
    """Import definitions into a virtual host."""
    name = call.names["vhost"]
    if name not in call.broker.vhosts:
        raise ApiError(404, "not_found", "vhost_not_found")
    document = await _document(call)
    await _execute(call, _plan(document, lambda _: name))
    return NO_CONTENT


async def _document(call: ApiCall) -> dict[str, Any]:
    document = await call.body(MAX_DEFINITIONS_BYTES)
    parameters = _entries(document, "parameters")
    known = [entry for entry in parameters if text_field(entry, "component") in COMPONENTS]
    if len(known) < len(parameters):
        skipped = sorted({str(entry.get("component")) for entry in parameters} - COMPONENTS)
        _log.warning("definitions skipped", components=skipped, user=call.user.name)
    return {**document, "parameters": known}


def _local(user: Definition) -> Definition:
    if ARGON2_FIELD not in user:
        return user
    return {**user, "password_hash": user[ARGON2_FIELD], "hashing_algorithm": "argon2id"}


def _entries(document: Mapping[str, Any], section: str) -> list[Definition]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise bad_request(f"{section}: a list of objects is expected")
    return entries


def _vhost_of(entry: Definition, known: set[str]) -> str:
    name = entry.get("vhost")
    if not isinstance(name, str) or name not in known:
        raise bad_request(f"no_such_vhost: {name}")
    return name


ImportStep = Callable[[dict[str, VirtualHost]], None]


def _plan(
    document: Mapping[str, Any], vhost_of: Callable[[Definition], str]
) -> list[tuple[ImportStep, int]]:
    """The steps in order, each with the number of such steps in a slice."""
    plan: list[tuple[ImportStep, int]] = []
    for section, make, count in (
        ("policies", _set_policy, 200),
        ("parameters", _set_parameter, 200),
        ("exchanges", _declare_exchange, 200),
        ("queues", _declare_queue, QUEUES_PER_SLICE),
        ("bindings", _bind, 200),
    ):
        for number, entry in enumerate(_entries(document, section)):
            try:
                plan.append((make(vhost_of(entry), entry), count))
            except PenstockError as error:
                raise bad_request(f"{section}[{number}]: {error}") from None
    return plan


def _set_policy(vhost: str, entry: Definition) -> ImportStep:
    policy = parse_policy(text_field(entry, "name"), entry)
    return lambda vhosts: vhosts[vhost].set_policy(policy)


def _set_parameter(vhost: str, entry: Definition) -> ImportStep:
    component, name = text_field(entry, "component"), text_field(entry, "name")
    value = entry.get("value")
    check_parameter(component, name, value)
    return lambda vhosts: set_parameter(vhosts[vhost], component, name, value)


def _declare_exchange(vhost: str, entry: Definition) -> ImportStep:
    name, kind = text_field(entry, "name"), text_field(entry, "type", "direct")
    durable, auto_delete = flag_field(entry, "durable"), flag_field(entry, "auto_delete")
    internal, arguments = flag_field(entry, "internal"), table_field(entry, "arguments")

    def step(vhosts: dict[str, VirtualHost]) -> None:
        if name not in vhosts[vhost].exchanges:
            vhosts[vhost].declare_exchange(
                name, kind, durable=durable, auto_delete=auto_delete, internal=internal,
                arguments=arguments,
            )  # fmt: skip

    return step


def _declare_queue(vhost: str, entry: Definition) -> ImportStep:
    name = text_field(entry, "name")
    durable, auto_delete = flag_field(entry, "durable"), flag_field(entry, "auto_delete")
    arguments = table_field(entry, "arguments")
    if not name:
        raise bad_request("the name of a queue is missing")

    def step(vhosts: dict[str, VirtualHost]) -> None:
        if name not in vhosts[vhost].queues:
            vhosts[vhost].declare_queue(
                name, durable=durable, auto_delete=auto_delete, arguments=arguments
            )

    return step


def _bind(vhost: str, entry: Definition) -> ImportStep:
    source, name = text_field(entry, "source"), text_field(entry, "destination")
    key, arguments = text_field(entry, "routing_key"), table_field(entry, "arguments")
    kind = text_field(entry, "destination_type", "queue")
    pack_arguments(arguments)  # raises before anything is declared

    def step(vhosts: dict[str, VirtualHost]) -> None:
        host = vhosts[vhost]
        destination = host.exchange(name) if kind == "exchange" else host.queue(name)
        if source:  # bindings of the default exchange are implicit
            host.bind(source, destination, key, arguments)

    return step


async def _execute(call: ApiCall, plan: list[tuple[ImportStep, int]]) -> None:
    done = 0
    try:
        for step, count in plan:
            step(call.broker.vhosts)
            done += 1
            if done % count == 0:
                call.done()
                await asyncio.sleep(0)
    except NotFound as error:
        raise bad_request(str(error)) from None
    finally:
        call.done()


def _queue(queue: Queue) -> Definition:
    return {
        "name": queue.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
    }


def _exchange(exchange: Exchange) -> Definition:
    return {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def _binding(binding: Binding) -> Definition:
    return {
        "source": binding.source,
        "destination": binding.destination.name,
        "destination_type": binding.destination.kind,
        "routing_key": binding.key,
        "arguments": binding.arguments,
    }


def _topology(vhost: VirtualHost) -> dict[str, list[Definition]]:
    """Policies, durable queues, exchanges and their bindings."""
    queues = {queue.name for queue in vhost.queues.values() if queue.durable and not queue.owner}
    return {
        "parameters": list(parameters(vhost)),
        "policies": [
            {"vhost": vhost.name, "name": each.name, **each.to_json()}
            for each in vhost.policies.all()
        ],
        "queues": [_queue(vhost.queues[name]) for name in queues],
        "exchanges": [
            _exchange(exchange)
            for exchange in vhost.exchanges.values()
            if exchange.name not in PREDECLARED_EXCHANGES
        ],
        "bindings": [
            _binding(binding)
            for binding in vhost.bindings()
            if binding.destination.kind == "exchange" or binding.destination.name in queues
        ],
    }


def _portable(user: Definition) -> Definition:
    if not user["password_hash"].startswith("$argon2"):
        return user
    salted = {"password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256"}
    return {**user, **salted, ARGON2_FIELD: user["password_hash"]}


async def export_all(call: ApiCall) -> HttpResponse:
    """Export users, virtual hosts, permissions, policies, queues, exchanges and bindings."""
    users = call.broker.users.export()
    document: dict[str, Any] = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": call.broker.product["product"],
        "product_version": call.broker.product["version"],
        "users": [_portable(user) for user in users["users"]],
        "vhosts": [{"name": name} for name in call.broker.vhosts],
        "permissions": users["permissions"],
        "topic_permissions": users["topic_permissions"],
        "parameters": [],
        "global_parameters": global_parameters(call),
        "policies": [],
        "queues": [],
        "exchanges": [],
        "bindings": [],
    }
    async for vhost in iterate_in_slices(list(call.broker.vhosts.values()), 1):
        for section, entries in _topology(vhost).items():
            document[section] += [{**entry, "vhost": vhost.name} for entry in entries]
    return _file(call, document)


async def export_vhost(call: ApiCall) -> HttpResponse:
    """Export the definitions of a virtual host."""
    return _file(call, {"rabbit_version": RABBITMQ_VERSION, **_topology(call.vhost)})


def _file(call: ApiCall, document: dict[str, Any]) -> HttpResponse:
    response = json_response(document)
    name = call.request.query.get("download")
    if name is None:
        return response
    safe = "".join(letter for letter in name if letter.isalnum() or letter in "-_.")
    headers = {**response.headers, "content-disposition": f'attachment; filename="{safe}"'}
    return HttpResponse(200, response.body, headers)


routes: Final = (
    ApiRoute("GET", "/api/definitions", export_all, AccessLevel.ADMINISTRATOR),
    ApiRoute("POST", "/api/definitions", import_all, AccessLevel.ADMINISTRATOR),
    ApiRoute("GET", "/api/definitions/{vhost}", export_vhost, AccessLevel.ADMINISTRATOR),
    ApiRoute("POST", "/api/definitions/{vhost}", import_vhost, AccessLevel.ADMINISTRATOR),
)
