"""`/api/policies`, `/api/operator-policies`, limits, parameters and feature flags.

The paths, bodies and permissions are RabbitMQ's. Parameters are those that Penstock has components
for: limits of virtual hosts, operator policies, schemas, shovels and upstreams of
federation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from penstock.broker.parameters import SCHEMA, SHOVEL, UPSTREAM, UPSTREAM_SET
from penstock.broker.policies import VHOST_LIMITS, Policy
from penstock.broker.user import USER_LIMITS
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import ConfigurationError, NotFound, PreconditionFailed
from penstock.destinations.schemas import MessageSchema
from penstock.federation.registry import check_federation_parameter
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    required_fields,
)
from penstock.server.management.http import (
    CREATED,
    NO_CONTENT,
    HttpResponse,
    bad_request,
)
from penstock.server.management.list_query import Row, item_response, list_response

OPERATOR_POLICY: Final = "operator_policy"
LIMITS_COMPONENT: Final = "vhost-limits"
#: Components whose values are stored as they are given.
STORED_COMPONENTS: Final = frozenset({SHOVEL, UPSTREAM, UPSTREAM_SET, SCHEMA})
COMPONENTS: Final = STORED_COMPONENTS | {OPERATOR_POLICY, LIMITS_COMPONENT}
#: The one name of the parameter that has all limits of a virtual host.
LIMITS_NAME: Final = "limits"
#: Features of RabbitMQ that clients ask for and Penstock always has.
FEATURE_FLAGS: Final = {
    "implicit_default_bindings": "Default bindings are implicit",
    "quorum_queue": "Quorum queues",
    "stream_queue": "Streams",
    "user_limits": "Limits of users",
    "virtual_host_metadata": "Description and tags of virtual hosts",
}


# Policies.


def _policy_row(vhost: VirtualHost, policy: Policy) -> Row:
    return {"vhost": vhost.name, "name": policy.name, **policy.to_json()}


def _find(call: ApiCall, operator: bool) -> Policy:
    for policy in call.vhost.policies.all(operator=operator):
        if policy.name == call.name:
            return policy
    kind = "operator policy" if operator else "policy"
    raise NotFound(f"no {kind} '{call.name}' in vhost '{call.vhost.name}'")


def parse_policy(name: str, body: dict[str, Any], *, operator: bool = False) -> Policy:
    try:
        return Policy.from_json(name, body, operator=operator)
    except PreconditionFailed as error:
        raise bad_request(str(error)) from None


def _policy_routes(path: str, operator: bool, level: AccessLevel) -> Iterator[ApiRoute]:
    async def list_policies(call: ApiCall) -> HttpResponse:
        rows = (
            _policy_row(vhost, policy)
            for vhost in call.vhosts()
            for policy in vhost.policies.all(operator=operator)
        )
        return await list_response(call, rows, ("name", "pattern"))

    async def get_policy(call: ApiCall) -> HttpResponse:
        return item_response(call, _policy_row(call.vhost, _find(call, operator)))

    async def put_policy(call: ApiCall) -> HttpResponse:
        vhost = call.vhost
        known = {policy.name for policy in vhost.policies.all(operator=operator)}
        body = await call.body()
        list(required_fields(body, "pattern", "definition"))
        vhost.set_policy(parse_policy(call.name, body, operator=operator), operator=operator)
        call.done()
        return NO_CONTENT if call.name in known else CREATED

    async def delete_policy(call: ApiCall) -> HttpResponse:
        call.vhost.remove_policy(call.name, operator=operator)
        call.done()
        return NO_CONTENT

    many, one = ("operator policies", "operator policy") if operator else ("policies", "policy")
    list_policies.__doc__ = f"List {many}: all, or those of a virtual host."
    get_policy.__doc__ = f"Describe the {one} of a name."
    put_policy.__doc__ = f"Set the {one} of a name: `pattern`, `definition`, `apply-to`, …"
    delete_policy.__doc__ = f"Delete the {one} of a name."
    yield ApiRoute("GET", path, list_policies)
    yield ApiRoute("GET", f"{path}/{{vhost}}", list_policies)
    yield ApiRoute("GET", f"{path}/{{vhost}}/{{name}}", get_policy)
    yield ApiRoute("PUT", f"{path}/{{vhost}}/{{name}}", put_policy, level)
    yield ApiRoute("DELETE", f"{path}/{{vhost}}/{{name}}", delete_policy, level)


# Limits of virtual hosts and users.


async def _limit_value(call: ApiCall, names: tuple[str, ...]) -> int:
    if call.name not in names:
        raise bad_request(f"{call.name} is not a limit: use {' or '.join(names)}")
    [value] = required_fields(await call.body(), "value")
    if isinstance(value, str) and value.lstrip("-").isdecimal():  # RabbitMQ's command line
        value = int(value)
    if type(value) is not int:
        raise bad_request(f"value: a whole number is expected, not {value!r}")
    return value


async def list_vhost_limits(call: ApiCall) -> HttpResponse:
    """List the limits of virtual hosts: all, or those of one."""
    rows = (
        {"vhost": vhost.name, "value": dict(vhost.policies.limits)}
        for vhost in call.vhosts()
        if vhost.policies.limits
    )
    return await list_response(call, rows)


async def put_vhost_limit(call: ApiCall) -> HttpResponse:
    """Set a limit of a virtual host: `max-connections` or `max-queues`."""
    call.vhost.policies.set_limit(call.name, await _limit_value(call, VHOST_LIMITS))
    call.done()
    return NO_CONTENT


async def delete_vhost_limit(call: ApiCall) -> HttpResponse:
    """Remove a limit of a virtual host."""
    call.vhost.policies.set_limit(call.name, None)
    call.done()
    return NO_CONTENT


async def list_user_limits(call: ApiCall) -> HttpResponse:
    """List the limits of users: all, or those of one."""
    users = call.broker.users
    chosen = [users.get(call.names["user"])] if "user" in call.names else users.all()
    rows = ({"user": user.name, "value": dict(user.limits)} for user in chosen if user.limits)
    return await list_response(call, rows)


async def put_user_limit(call: ApiCall) -> HttpResponse:
    """Set a limit of a user: `max-connections` or `max-channels`."""
    value = await _limit_value(call, USER_LIMITS)
    await asyncio.to_thread(call.broker.users.set_limit, call.names["user"], call.name, value)
    return NO_CONTENT


async def delete_user_limit(call: ApiCall) -> HttpResponse:
    """Remove a limit of a user."""
    await asyncio.to_thread(call.broker.users.set_limit, call.names["user"], call.name, None)
    return NO_CONTENT


# Parameters.


def parameters(vhost: VirtualHost) -> Iterator[Row]:
    """As in definitions."""
    for policy in vhost.policies.all(operator=True):
        value = policy.to_json()
        yield {"component": OPERATOR_POLICY, "name": policy.name, "value": value}
    if vhost.policies.limits:
        value = dict(vhost.policies.limits)
        yield {"component": LIMITS_COMPONENT, "name": LIMITS_NAME, "value": value}
    for component, name, setting in vhost.parameters.all():
        yield {"component": component, "name": name, "value": setting}


def check_parameter(component: str, name: str, value: Any) -> None:
    if component not in COMPONENTS:
        raise bad_request(f"Validation failed\n\ncomponent {component} not found\n")
    if component in STORED_COMPONENTS:
        try:
            if component == SCHEMA:
                MessageSchema(name, value)
            else:
                check_federation_parameter(component, name, value)
        except (PreconditionFailed, ConfigurationError) as error:
            raise bad_request(str(error)) from None
        return
    if not isinstance(value, dict):
        raise bad_request("value: an object is expected")
    if component == OPERATOR_POLICY:
        parse_policy(name, value, operator=True)
    elif not value.keys() <= set(VHOST_LIMITS) or {type(each) for each in value.values()} - {int}:
        raise bad_request(f"limits are {' and '.join(VHOST_LIMITS)}, whole numbers")


def set_parameter(vhost: VirtualHost, component: str, name: str, value: Any) -> None:
    check_parameter(component, name, value)
    if component in STORED_COMPONENTS:
        vhost.set_parameter(component, name, value)
    elif component == OPERATOR_POLICY:
        vhost.set_policy(parse_policy(name, value, operator=True), operator=True)
    else:
        for key in VHOST_LIMITS:
            vhost.policies.set_limit(key, value.get(key))


def _parameter_rows(call: ApiCall) -> Iterator[Row]:
    component = call.names.get("component")
    for vhost in call.vhosts():
        for row in parameters(vhost):
            if component in (None, row["component"]):
                yield {"vhost": vhost.name, **row}


async def list_parameters(call: ApiCall) -> HttpResponse:
    """List parameters: all, those of a component, or of a component in a virtual host."""
    return await list_response(call, _parameter_rows(call), ("name", "component"))


def _parameter(call: ApiCall) -> Row:
    for row in _parameter_rows(call):
        if row["name"] == call.name:
            return row
    raise NotFound(f"no parameter '{call.name}' of component '{call.names['component']}'")


async def get_parameter(call: ApiCall) -> HttpResponse:
    """Describe a parameter."""
    return item_response(call, _parameter(call))


async def put_parameter(call: ApiCall) -> HttpResponse:
    """Set a parameter (`value`) of a component."""
    known = {(row["component"], row["name"]) for row in _parameter_rows(call)}
    component = call.names["component"]
    [value] = required_fields(await call.body(), "value")
    set_parameter(call.vhost, component, call.name, value)
    call.done()
    return NO_CONTENT if (component, call.name) in known else CREATED


async def delete_parameter(call: ApiCall) -> HttpResponse:
    """Delete a parameter."""
    _parameter(call)
    component = call.names["component"]
    if component in STORED_COMPONENTS:
        call.vhost.set_parameter(component, call.name, None)
    elif component == OPERATOR_POLICY:
        call.vhost.remove_policy(call.name, operator=True)
    else:
        set_parameter(call.vhost, LIMITS_COMPONENT, LIMITS_NAME, {})
    call.done()
    return NO_CONTENT


def global_parameters(call: ApiCall) -> list[Row]:
    """Values that programs keep for themselves; the broker does not use them."""
    stored = call.broker.topology.all("global-parameter")
    return [{"name": key[1], "value": value["value"]} for key, value in stored]


async def list_global_parameters(call: ApiCall) -> HttpResponse:
    """List global parameters."""
    return await list_response(call, global_parameters(call))


async def get_global_parameter(call: ApiCall) -> HttpResponse:
    """Describe a global parameter."""
    stored = call.broker.topology.get(("global-parameter", call.name))
    if stored is None:
        raise NotFound(f"no global parameter '{call.name}'")
    return item_response(call, {"name": call.name, "value": stored["value"]})


async def put_global_parameter(call: ApiCall) -> HttpResponse:
    """Set a global parameter (`value`)."""
    key = ("global-parameter", call.name)
    known = call.broker.topology.get(key) is not None
    [value] = required_fields(await call.body(), "value")
    call.broker.topology.put(key, {"value": value})
    call.done()
    return NO_CONTENT if known else CREATED


async def delete_global_parameter(call: ApiCall) -> HttpResponse:
    """Delete a global parameter."""
    await get_global_parameter(call)
    call.broker.topology.drop(("global-parameter", call.name))
    call.done()
    return NO_CONTENT


# Feature flags.


async def list_feature_flags(call: ApiCall) -> HttpResponse:
    """List the feature flags of RabbitMQ that this broker has; all are enabled."""
    rows = (
        {
            "name": name,
            "state": "enabled",
            "stability": "stable",
            "provided_by": "penstock",
            "desc": text,
            "doc_url": "",
        }
        for name, text in FEATURE_FLAGS.items()
    )
    return await list_response(call, rows)


async def enable_feature_flag(call: ApiCall) -> HttpResponse:
    """Accepted for RabbitMQ's clients: every feature flag is enabled."""
    if call.name != "all" and call.name not in FEATURE_FLAGS:
        raise bad_request("unsupported")
    return NO_CONTENT


_POLICYMAKER: Final = AccessLevel.POLICYMAKER
_ADMINISTRATOR: Final = AccessLevel.ADMINISTRATOR
_PARAMETER: Final = "/api/parameters/{component}/{vhost}/{name}"

routes: Final = (
    *_policy_routes("/api/policies", False, _POLICYMAKER),
    *_policy_routes("/api/operator-policies", True, _ADMINISTRATOR),
    ApiRoute("GET", "/api/vhost-limits", list_vhost_limits),
    ApiRoute("GET", "/api/vhost-limits/{vhost}", list_vhost_limits),
    ApiRoute("PUT", "/api/vhost-limits/{vhost}/{name}", put_vhost_limit, _ADMINISTRATOR),
    ApiRoute("DELETE", "/api/vhost-limits/{vhost}/{name}", delete_vhost_limit, _ADMINISTRATOR),
    ApiRoute("GET", "/api/user-limits", list_user_limits, _ADMINISTRATOR),
    ApiRoute("GET", "/api/user-limits/{user}", list_user_limits, _ADMINISTRATOR),
    ApiRoute("PUT", "/api/user-limits/{user}/{name}", put_user_limit, _ADMINISTRATOR),
    ApiRoute("DELETE", "/api/user-limits/{user}/{name}", delete_user_limit, _ADMINISTRATOR),
    ApiRoute("GET", "/api/parameters", list_parameters, _POLICYMAKER),
    ApiRoute("GET", "/api/parameters/{component}", list_parameters, _POLICYMAKER),
    ApiRoute("GET", "/api/parameters/{component}/{vhost}", list_parameters, _POLICYMAKER),
    ApiRoute("GET", _PARAMETER, get_parameter, _POLICYMAKER),
    ApiRoute("PUT", _PARAMETER, put_parameter, _ADMINISTRATOR),
    ApiRoute("DELETE", _PARAMETER, delete_parameter, _ADMINISTRATOR),
    ApiRoute("GET", "/api/global-parameters", list_global_parameters, _POLICYMAKER),
    ApiRoute("GET", "/api/global-parameters/{name}", get_global_parameter, _POLICYMAKER),
    ApiRoute("PUT", "/api/global-parameters/{name}", put_global_parameter, _POLICYMAKER),
    ApiRoute("DELETE", "/api/global-parameters/{name}", delete_global_parameter, _POLICYMAKER),
    ApiRoute("GET", "/api/feature-flags", list_feature_flags),
    ApiRoute("PUT", "/api/feature-flags/{name}/enable", enable_feature_flag, _ADMINISTRATOR),
)
