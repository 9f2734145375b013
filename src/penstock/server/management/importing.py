"""Definitions in: first all is read, and what makes no sense is refused; then all is declared.

What is there already stays as it is. The work is done in slices, so that ten thousand queues hold
nobody up. Policies and parameters, which Penstock does not have, are passed over, and the log says
so. Files are RabbitMQ's, or ours (`definitions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.broker.topology import pack_arguments
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import NotFound, PenstockError
from penstock.core.logs import get_logger
from penstock.server.management.call import Call, flag_in, table_in, text_in
from penstock.server.management.errors import Refusal, bad_request
from penstock.server.management.http import DONE, Response

_log = get_logger("penstock.management")

#: A file with a hundred thousand queues is smaller.
DEFINITIONS_BYTES: Final = 64 << 20
#: A durable queue makes files: fewer at a time than of other things.
QUEUES: Final = 20
_UNKNOWN: Final = ("parameters", "global_parameters", "policies", "operator_policies")

#: Where an argon2 hash stands, out of RabbitMQ's sight.
ARGON2: Final = "argon2_hash"

Entry = dict[str, Any]


async def import_all(call: Call) -> Response:
    document = await _document(call)
    vhosts = [text_in(entry, "name") for entry in _entries(document, "vhosts")]
    known = {*call.broker.vhosts, *vhosts}
    plan = _plan(document, lambda entry: _vhost_of(entry, known))
    users = {
        "users": [_local(user) for user in _entries(document, "users")],
        "permissions": _entries(document, "permissions"),
        "topic_permissions": _entries(document, "topic_permissions"),
    }
    if any(users.values()):  # all of them or, when one makes no sense, none
        await asyncio.to_thread(call.broker.users.restore, users)
    for name in vhosts:
        call.broker.add_vhost(name)
    await _carry_out(call, plan)
    return DONE


async def import_vhost(call: Call) -> Response:
    name = call.names["vhost"]
    if name not in call.broker.vhosts:
        raise Refusal(404, "not_found", "vhost_not_found")
    document = await _document(call)
    await _carry_out(call, _plan(document, lambda _: name))
    return DONE


async def _document(call: Call) -> dict[str, Any]:
    document = await call.body(DEFINITIONS_BYTES)
    skipped = [section for section in _UNKNOWN if document.get(section)]
    if skipped:
        _log.warning("definitions passed over", sections=skipped, user=call.user.name)
    return document


def _local(user: Entry) -> Entry:
    if ARGON2 not in user:
        return user
    return {**user, "password_hash": user[ARGON2], "hashing_algorithm": "argon2id"}


def _entries(document: Mapping[str, Any], section: str) -> list[Entry]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise bad_request(f"{section}: a list of objects is expected")
    return entries


def _vhost_of(entry: Entry, known: set[str]) -> str:
    name = entry.get("vhost")
    if name not in known:
        raise bad_request(f"no_such_vhost: {name}")
    return str(name)


#: Does one thing; there is nothing to wait for in it.
Step = Callable[[dict[str, VirtualHost]], None]


def _plan(document: Mapping[str, Any], vhost_of: Callable[[Entry], str]) -> list[tuple[Step, int]]:
    """The steps to take, in order, each with how many of its kind make a slice."""
    plan: list[tuple[Step, int]] = []
    for section, make, count in (
        ("exchanges", _declare_exchange, 200),
        ("queues", _declare_queue, QUEUES),
        ("bindings", _bind, 200),
    ):
        for number, entry in enumerate(_entries(document, section)):
            try:
                plan.append((make(vhost_of(entry), entry), count))
            except PenstockError as error:
                raise bad_request(f"{section}[{number}]: {error}") from None
    return plan


def _declare_exchange(vhost: str, entry: Entry) -> Step:
    name, kind = text_in(entry, "name"), text_in(entry, "type", "direct")
    durable, auto_delete = flag_in(entry, "durable"), flag_in(entry, "auto_delete")
    internal, arguments = flag_in(entry, "internal"), table_in(entry, "arguments")

    def step(vhosts: dict[str, VirtualHost]) -> None:
        if name not in vhosts[vhost].exchanges:
            vhosts[vhost].declare_exchange(
                name, kind, durable=durable, auto_delete=auto_delete, internal=internal,
                arguments=arguments,
            )  # fmt: skip

    return step


def _declare_queue(vhost: str, entry: Entry) -> Step:
    name = text_in(entry, "name")
    durable, auto_delete = flag_in(entry, "durable"), flag_in(entry, "auto_delete")
    arguments = table_in(entry, "arguments")
    if not name:
        raise bad_request("a queue has a name")

    def step(vhosts: dict[str, VirtualHost]) -> None:
        if name not in vhosts[vhost].queues:
            vhosts[vhost].declare_queue(
                name, durable=durable, auto_delete=auto_delete, arguments=arguments
            )

    return step


def _bind(vhost: str, entry: Entry) -> Step:
    source, name = text_in(entry, "source"), text_in(entry, "destination")
    key, arguments = text_in(entry, "routing_key"), table_in(entry, "arguments")
    kind = text_in(entry, "destination_type", "queue")
    pack_arguments(arguments)  # what no field table can hold is refused now, not half-way

    def step(vhosts: dict[str, VirtualHost]) -> None:
        host = vhosts[vhost]
        destination = host.exchange(name) if kind == "exchange" else host.queue(name)
        if source:  # the default exchange binds by itself
            host.bind(source, destination, key, arguments)

    return step


async def _carry_out(call: Call, plan: list[tuple[Step, int]]) -> None:
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
