"""`/api/content`: the content space of a virtual host and its console; `/api/overlay`: the brokers
of the overlay; `/console` and `/overlay`: their pages."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from penstock.broker.contract import LOGGED
from penstock.core.errors import PenstockError
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute, required_fields
from penstock.server.management.http import NO_CONTENT, HttpResponse, bad_request, json_response
from penstock.server.management.overview import PAGE_HEADERS

if TYPE_CHECKING:
    from penstock.server.console import ContentConsole


def _console(call: ApiCall) -> ContentConsole:
    return call.broker.overlay.console(call.vhost.name)


async def show_content_space(call: ApiCall) -> HttpResponse:
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
        await _committed(call)
    return json_response({"output": "\n".join(answers), "error": failed})


async def _committed(call: ApiCall) -> None:
    kernel = call.broker.kernel
    written: asyncio.Future[None] = kernel.loop.create_future()
    kernel.committer.after(lambda: written.set_result(None), written.set_exception)
    kernel.write_batch.flush()
    await written


async def console_page(call: ApiCall) -> HttpResponse:
    return HttpResponse(200, files(__package__).joinpath("console.html").read_bytes(), PAGE_HEADERS)


async def show_overlay(call: ApiCall) -> HttpResponse:
    """The last reports of all brokers. New ones are requested for the next call."""
    found = call.broker.overlay.federation().reports()
    call.done()
    return json_response(found)


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
    (enabled,) = required_fields(await call.body(), "enabled")
    if not isinstance(enabled, bool):
        raise bad_request("enabled: true or false is expected")
    call.broker.overlay.federation().set_heartbeats(enabled)
    call.done()
    return NO_CONTENT


async def overlay_page(call: ApiCall) -> HttpResponse:
    return HttpResponse(200, files(__package__).joinpath("overlay.html").read_bytes(), PAGE_HEADERS)


routes: Final = (
    ApiRoute("GET", "/console", console_page, AccessLevel.ANYONE),
    ApiRoute("GET", "/api/content/{vhost}", show_content_space, AccessLevel.MONITORING),
    ApiRoute("POST", "/api/content/{vhost}/console", run_commands, AccessLevel.ADMINISTRATOR),
    ApiRoute("GET", "/overlay", overlay_page, AccessLevel.ANYONE),
    ApiRoute("GET", "/api/overlay", show_overlay, AccessLevel.MONITORING),
    ApiRoute("POST", "/api/overlay", send_command, AccessLevel.ADMINISTRATOR),
    ApiRoute("PUT", "/api/overlay/heartbeats", set_heartbeats, AccessLevel.ADMINISTRATOR),
)
