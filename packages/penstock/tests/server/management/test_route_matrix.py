"""Role by route, permission by route and virtual host by route, over every route there is.

A route without a line in the table fails: who adds one has to say who may call it.
"""

from __future__ import annotations

import re
from typing import Final

import httpx

from penstock.server import Broker
from penstock.server.management.server import ROUTES
from tests.server.management.conftest import As
from tests.server.management.given import queue, user

ROLES: Final = ("", "management", "policymaker", "monitoring", "administrator")
#: The levels a role has.
LEVELS: Final = {
    "": {"anyone", "user"},
    "management": {"anyone", "user", "management"},
    "policymaker": {"anyone", "user", "management", "policymaker"},
    "monitoring": {"anyone", "user", "management", "monitoring"},
    "administrator": {
        *("anyone", "user", "management", "policymaker", "monitoring", "administrator")
    },
}

#: method and path → the least level, and the permissions on what the path names.
TABLE: Final = """
GET /                                       anyone
GET /static/{file}                          anyone
GET /sections/{file}                        anyone
GET /api/watch                              management
GET /api/sections                           management
GET /api/sections/{section}/{call}          monitoring
POST /api/sections/{section}/{call}         administrator
GET /docs                                   anyone
GET /docs/{part0}                           anyone
GET /docs/{part0}/{part1}                   anyone
GET /docs/{part0}/{part1}/{part2}           anyone
GET /docs/{part0}/{part1}/{part2}/{part3}   anyone
GET /metrics                                anyone
GET /metrics/detailed                       monitoring
GET /metrics/per-object                     monitoring
GET /api/overview                           management
GET /api/asyncapi/{vhost}                   management
GET /api/nodes                              monitoring
GET /api/nodes/{name}                       monitoring
GET /api/whoami                             management
GET /api/cluster-name                       management
GET /api/cluster                            monitoring
POST /api/cluster/promote                   administrator
POST /api/cluster/resign                    administrator
POST /api/cluster/leave                     administrator
POST /api/snapshots                         administrator
GET /api/snapshots/{snapshot}/{path}        administrator
DELETE /api/snapshots/{snapshot}            administrator
GET /api/extensions                         management
DELETE /api/reset                           administrator
DELETE /api/reset/{name}                    administrator
GET /api/auth                               anyone
GET /api/auth/provider                      anyone
POST /api/auth/token                        anyone
GET /api/feature-flags                      management
PUT /api/feature-flags/{name}/enable        administrator
GET /api/policies                           management
GET /api/policies/{vhost}                   management
GET /api/policies/{vhost}/{name}            management
PUT /api/policies/{vhost}/{name}            policymaker
DELETE /api/policies/{vhost}/{name}         policymaker
GET /api/message-traces/{vhost}             administrator
PUT /api/message-traces/{vhost}             administrator
DELETE /api/message-traces/{vhost}          administrator
GET /api/message-traces/{vhost}/{id}        administrator
GET /api/message-timelines/{vhost}          administrator
GET /api/delayed-messages/{vhost}           administrator
DELETE /api/delayed-messages/{vhost}        administrator
DELETE /api/delayed-messages/{vhost}/{id}   administrator
GET /api/shovels                            monitoring
GET /api/shovels/{vhost}                    monitoring
GET /api/shovels/{vhost}/{name}             monitoring
GET /api/shovels/vhost/{vhost}/{name}       monitoring
DELETE /api/shovels/vhost/{vhost}/{name}    administrator
DELETE /api/shovels/vhost/{vhost}/{name}/restart  administrator
GET /api/federation-links                   monitoring
GET /api/federation-links/state/down        monitoring
GET /api/federation-links/{vhost}           monitoring
GET /api/federation-links/{vhost}/state/down  monitoring
DELETE /api/federation-links/vhost/{vhost}/{id}/restart  administrator
DELETE /api/federation-links/vhost/{vhost}/{id}/{node}/restart  administrator
GET /api/operator-policies                  management
GET /api/operator-policies/{vhost}          management
GET /api/operator-policies/{vhost}/{name}   management
PUT /api/operator-policies/{vhost}/{name}   administrator
DELETE /api/operator-policies/{vhost}/{name}  administrator
GET /api/parameters                         policymaker
GET /api/parameters/{component}             policymaker
GET /api/parameters/{component}/{vhost}     policymaker
GET /api/parameters/{component}/{vhost}/{name}     policymaker
PUT /api/parameters/{component}/{vhost}/{name}     administrator
DELETE /api/parameters/{component}/{vhost}/{name}  administrator
GET /api/global-parameters                  policymaker
GET /api/global-parameters/{name}           policymaker
PUT /api/global-parameters/{name}           policymaker
DELETE /api/global-parameters/{name}        policymaker
GET /api/vhost-limits                       management
GET /api/vhost-limits/{vhost}               management
PUT /api/vhost-limits/{vhost}/{name}        administrator
DELETE /api/vhost-limits/{vhost}/{name}     administrator
GET /api/user-limits                        administrator
GET /api/user-limits/{user}                 administrator
PUT /api/user-limits/{user}/{name}          administrator
DELETE /api/user-limits/{user}/{name}       administrator
GET /api/connections/username/{user}        management
DELETE /api/connections/username/{user}     management
GET /api/vhosts                             management
GET /api/vhosts/{name}                      management
PUT /api/vhosts/{name}                      administrator
DELETE /api/vhosts/{name}                   administrator
GET /api/connections                        management
GET /api/connections/{name}                 management
DELETE /api/connections/{name}              management
GET /api/connections/{name}/channels        management
GET /api/vhosts/{vhost}/connections         management
GET /api/channels                           management
GET /api/channels/{name}                    management
GET /api/vhosts/{vhost}/channels            management
GET /api/connections/{name}/consumers       management
GET /api/channels/{name}/consumers          management
GET /api/consumers                          management
GET /api/consumers/{vhost}                  management
GET /api/exchanges                          management
GET /api/exchanges/{vhost}                  management
GET /api/exchanges/{vhost}/{name}           management
PUT /api/exchanges/{vhost}/{name}           management configure
DELETE /api/exchanges/{vhost}/{name}        management configure
GET /api/exchanges/{vhost}/{name}/bindings/source       management
GET /api/exchanges/{vhost}/{name}/bindings/destination  management
POST /api/exchanges/{vhost}/{name}/publish  management write
GET /api/bindings                           management
GET /api/bindings/{vhost}                   management
GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}     management
POST /api/bindings/{vhost}/e/{source}/{kind}/{destination}    management write read
GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties}     management
DELETE /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties}  management write read
GET /api/queues                             management
GET /api/queues/{vhost}                     management
GET /api/queues/{vhost}/{name}              management
PUT /api/queues/{vhost}/{name}              management configure
DELETE /api/queues/{vhost}/{name}           management configure
DELETE /api/queues/{vhost}/{name}/contents  management read
POST /api/queues/{vhost}/{name}/actions     management
GET /api/queues/{vhost}/{name}/bindings     management
GET /api/queues/{vhost}/{name}/consumers    management
POST /api/queues/{vhost}/{name}/get         management read
GET /api/queues/{vhost}/{name}/messages     management read
POST /api/queues/{vhost}/{name}/redrive     management read
POST /api/queues/{vhost}/{name}/discard     management read
GET /api/dead-letters                       management
GET /api/dead-letters/{vhost}               management
GET /api/mqtt/sessions                      management
GET /api/mqtt/sessions/{vhost}              management
GET /api/mqtt/sessions/{vhost}/{name}       management
GET /api/mqtt/subscriptions                 management
GET /api/mqtt/subscriptions/{vhost}         management
GET /api/mqtt/retained/{vhost}              management read
GET /api/mqtt/retained/{vhost}/{topic}      management read
DELETE /api/mqtt/retained/{vhost}/{topic}   management write
GET /api/streams                            user
GET /api/streams/{name}                     user read
GET /api/users                              administrator
GET /api/users/without-access               administrator
POST /api/users/bulk-delete                 administrator
GET /api/users/{name}                       administrator
PUT /api/users/{name}                       administrator
DELETE /api/users/{name}                    administrator
GET /api/users/{user}/permissions           administrator
GET /api/users/{user}/topic-permissions     administrator
GET /api/vhosts/{vhost}/permissions         administrator
GET /api/vhosts/{vhost}/topic-permissions   administrator
GET /api/permissions                        administrator
GET /api/permissions/{vhost}/{user}         administrator
PUT /api/permissions/{vhost}/{user}         administrator
DELETE /api/permissions/{vhost}/{user}      administrator
GET /api/topic-permissions                  administrator
GET /api/topic-permissions/{vhost}/{user}   administrator
PUT /api/topic-permissions/{vhost}/{user}   administrator
DELETE /api/topic-permissions/{vhost}/{user}             administrator
DELETE /api/topic-permissions/{vhost}/{user}/{exchange}  administrator
GET /api/definitions                        administrator
POST /api/definitions                       administrator
GET /api/definitions/{vhost}                administrator
POST /api/definitions/{vhost}               administrator
GET /api/content/{vhost}                    monitoring
POST /api/content/{vhost}/console           administrator
GET /api/overlay                            monitoring
POST /api/overlay                           administrator
PUT /api/overlay/heartbeats                 administrator
PUT /api/overlay/heartbeats/{broker}        administrator
POST /api/overlay/inject/{broker}           administrator
GET /api/overlay/traces/{name}              monitoring
GET /api/aliveness-test/{vhost}             management configure write read
GET /api/health/checks/alarms               management
GET /api/health/checks/local-alarms         management
GET /api/health/checks/virtual-hosts        management
GET /api/health/checks/ready                management
GET /api/health/checks/node-is-mirror-sync-critical    management
GET /api/health/checks/node-is-quorum-critical         management
GET /api/health/checks/certificate-expiration/{within}/{unit}  management
GET /api/health/checks/ready-to-serve-clients          management
GET /api/health/checks/port-listener/{port}            management
GET /api/health/checks/protocol-listener/{protocol}    management
"""
MATRIX: Final = {
    (words[0], words[1]): (words[2], frozenset(words[3:]))
    for words in (line.split() for line in TABLE.strip().splitlines())
}
#: Names that exist, so that a call gets as far as the permissions of what it names.
NAMES: Final = {
    "vhost": "%2F",
    "source": "amq.topic",
    "destination": "orders",
    "kind": "q",
    "properties": "~",
    "port": "1",
}
_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_AT_THE_GATE: Final = {
    "Login failed",
    "Not management user",
    "Not policymaker user",
    "Not monitor user",
    "Not administrator user",
}
_REFUSED: Final = ("access to ", "User not authorised to access virtual host")
PUBLISH: Final = {
    "properties": {},
    "routing_key": "k",
    "payload": "",
    "payload_encoding": "string",
    "count": 1,
    "ackmode": "ack_requeue_true",
    "encoding": "auto",
}


def place(method: str, path: str, vhost: str = "%2F") -> str:
    """The path with names of things that exist; what a call deletes or changes does not."""
    name = "orders" if "queues" in path else "amq.topic" if method != "DELETE" else "absent"
    names = {**NAMES, "vhost": vhost, "name": name}
    if "exchanges" not in path and "queues" not in path:
        names["name"] = "absent"
    return _VARIABLE.sub(lambda found: names.get(found[1], "absent"), path)


async def call(api: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    root = str(api.base_url).removesuffix("/api/")
    body = PUBLISH if "publish" in path or path.endswith("/get") else {}
    return await api.request(method, root + path, json=None if method == "GET" else body)


def reason(response: httpx.Response) -> str:
    if response.status_code != 401:
        return ""
    return str(response.json().get("reason", ""))


def test_every_route_has_a_line() -> None:
    assert {(route.method, route.path) for route in ROUTES} == set(MATRIX)


async def test_a_role_may_call_what_its_level_allows(api: httpx.AsyncClient, as_user: As) -> None:
    await queue(api, "orders")
    wrong = []
    for role in ROLES:
        await user(api, f"role-{role}", role)
        client = as_user(f"role-{role}", f"role-{role}")
        for (method, path), (level, _) in MATRIX.items():
            if path == "/api/aliveness-test/{vhost}":
                continue  # it declares a queue; the permissions below cover it
            response = await call(client, method, place(method, path))
            refused = reason(response) in _AT_THE_GATE
            if refused == (level in LEVELS[role]):
                wrong.append((role, method, path, response.status_code, response.text[:80]))
            if response.status_code >= 500 and response.status_code != 503:
                wrong.append((role, method, path, response.status_code, response.text[:80]))
        await api.put("/queues/%2F/orders", json={})
    assert wrong == []


async def test_without_a_password_only_pages_and_metrics_are_served(served: Broker) -> None:
    answered = set()
    async with httpx.AsyncClient(base_url=f"{served.addresses[1]}/api") as stranger:
        for method, path in MATRIX:
            if (await call(stranger, method, place(method, path))).status_code != 401:
                answered.add((method, path))
    assert answered == {key for key, (level, _) in MATRIX.items() if level == "anyone"}


async def test_permissions_apply_to_what_a_path_names(api: httpx.AsyncClient, as_user: As) -> None:
    """Without one of the permissions a route needs it is refused; with just these it is not."""
    await queue(api, "orders")
    await user(api, "ada", "management")
    ada = as_user("ada", "ada")
    wrong = []
    for (method, path), (level, kinds) in MATRIX.items():
        if level not in LEVELS["management"]:
            continue  # administrators may change permissions
        attempts = [(kinds - {kind}, True) for kind in kinds] + [(kinds, False)]
        for granted, expected in attempts:
            rights = {
                kind: ".*" if kind in granted else "^$" for kind in ("configure", "write", "read")
            }
            await api.put("/permissions/%2F/ada", json=rights)
            await api.post("/bindings/%2F/e/amq.topic/q/orders", json={})
            response = await call(ada, method, place(method, path))
            if any(text in reason(response) for text in _REFUSED) != expected:
                wrong.append((method, path, sorted(granted), response.text[:100]))
        await api.put("/queues/%2F/orders", json={})
    assert wrong == []


async def test_what_is_in_another_virtual_host_is_refused(
    api: httpx.AsyncClient, as_user: As
) -> None:
    """A user without access to a virtual host gets nothing of it, whatever the tag."""
    await api.put("/vhosts/theirs")
    await api.put("/queues/theirs/orders", json={})
    for role in ("management", "policymaker", "monitoring"):
        await user(api, role, role)
        client = as_user(role, role)
        open_to = set()
        for (method, path), (level, _) in MATRIX.items():
            if "{vhost}" not in path or level not in LEVELS[role]:
                continue
            response = await call(client, method, place(method, path, "theirs"))
            if not any(text in reason(response) for text in _REFUSED):
                open_to.add((method, path))
        assert open_to == set(), role
