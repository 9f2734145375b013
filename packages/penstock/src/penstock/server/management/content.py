"""`/api/content`: the content space of a virtual host and its console; `/api/overlay`: the brokers
of the overlay, their heartbeats, injected messages and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import LOGGED
from penstock.core.errors import PenstockError
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    committed,
    flag_field,
    required_fields,
    text_field,
)
from penstock.server.management.http import NO_CONTENT, HttpResponse, bad_request, json_response

if TYPE_CHECKING:
    from penstock.server.console import ContentConsole


def _console(call: ApiCall) -> ContentConsole:
    return call.broker.overlay.console(call.vhost.name)


async def show_content_space(call: ApiCall) -> HttpResponse:
    """Describe a virtual host's content space: advertisements, subscriptions and clients."""
    return json_response(_console(call).info())


async def run_commands(call: ApiCall) -> HttpResponse:
    """Run console commands, one per line, up to the first that fails."""
    (command,) = required_fields(await call.body(), "command")
    if not isinstance(command, str):
        raise bad_request("command: a string is expected")
    console = _console(call)
    answers: list[str] = []
    failed = ""
    outcome = 0
    for line in command.splitlines():
        try:
            answer = console.run(line)
        except PenstockError as error:
            failed = str(error)
            break
        outcome |= answer.outcome
        if answer.text:
            answers.append(answer.text)
    call.done()
    if outcome & LOGGED:
        await committed(call)
    return json_response({"output": "\n".join(answers), "error": failed})


async def show_overlay(call: ApiCall) -> HttpResponse:
    """The last reports of all brokers of the overlay. New ones are requested for the next call."""
    overlay = call.broker.overlay
    found = overlay.federation().reports()
    call.done()
    own = call.broker.settings.overlay.id
    from penstock.overlay.broker_uri import without_user

    refused = {without_user(one): why for one, why in overlay.links.refused.items()}
    return json_response(
        [
            {**one, "refused": refused, "own": True} if one.get("brokerID") == own else one
            for one in found
        ]
    )


async def send_command(call: ApiCall) -> HttpResponse:
    """Send a command to a broker: STOP, RESUME, SHUTDOWN, or one of the overlay."""
    body = await call.body()
    broker, command = required_fields(body, "broker", "command")
    other = body.get("other", "")
    if not all(isinstance(one, str) for one in (broker, command, other)):
        raise bad_request("broker, command and other: strings are expected")
    if "-" not in command:
        command = f"LIFECYCLE-{command}"
    call.broker.overlay.federation().send_command(broker, command, other)
    call.done()
    return NO_CONTENT


async def set_heartbeats(call: ApiCall) -> HttpResponse:
    """Switch the heartbeats of all links of the overlay on or off."""
    (enabled,) = required_fields(await call.body(), "enabled")
    if not isinstance(enabled, bool):
        raise bad_request("enabled: true or false is expected")
    call.broker.overlay.federation().set_heartbeats(enabled)
    call.done()
    return NO_CONTENT


async def set_broker_heartbeat(call: ApiCall) -> HttpResponse:
    """Set the heartbeats of a broker; settings that are not named get their defaults."""
    from penstock.overlay.heartbeats import HeartbeatSettings

    body = await call.body()
    values: dict[str, Any] = {}
    for name, kind in (("interval", float), ("timeout", float), ("threshold", int)):
        value = body.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise bad_request(f"{name}: a number is expected, not {value!r}")
            values[name] = kind(value)
    settings = HeartbeatSettings(flag_field(body, "enabled"), **values)
    call.broker.overlay.federation().set_heartbeat(call.names["broker"], settings)
    call.done()
    return NO_CONTENT


async def inject_message(call: ApiCall) -> HttpResponse:
    """Send a message as a broker of the overlay, and trace its path."""
    body = await call.body()
    required_fields(body, "message")
    kind, message = text_field(body, "kind", "publish"), text_field(body, "message")
    federation = call.broker.overlay.federation()
    from penstock.server.overlay_status import INJECTIONS

    if kind not in INJECTIONS:
        raise bad_request(f"kind: one of {', '.join(INJECTIONS)} is expected")
    trace = federation.inject(call.names["broker"], kind, message, text_field(body, "name"))
    call.done()
    return json_response({"trace": trace})


async def show_trace(call: ApiCall) -> HttpResponse:
    """The path of a traced message through the overlay."""
    return json_response(call.broker.overlay.federation().trace(call.name))


routes: Final = (
    ApiRoute("GET", "/api/content/{vhost}", show_content_space, AccessLevel.MONITORING),
    ApiRoute("POST", "/api/content/{vhost}/console", run_commands, AccessLevel.ADMINISTRATOR),
    ApiRoute("GET", "/api/overlay", show_overlay, AccessLevel.MONITORING),
    ApiRoute("POST", "/api/overlay", send_command, AccessLevel.ADMINISTRATOR),
    ApiRoute("PUT", "/api/overlay/heartbeats", set_heartbeats, AccessLevel.ADMINISTRATOR),
    ApiRoute(
        "PUT",
        "/api/overlay/heartbeats/{broker}",
        set_broker_heartbeat,
        AccessLevel.ADMINISTRATOR,
    ),
    ApiRoute("POST", "/api/overlay/inject/{broker}", inject_message, AccessLevel.ADMINISTRATOR),
    ApiRoute("GET", "/api/overlay/traces/{name}", show_trace, AccessLevel.MONITORING),
)
