"""`/api/content`: the content space of a virtual host, and its console; `/console`: its page."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from penstock.broker.destinations import LOGGED
from penstock.core.errors import PenstockError
from penstock.server.management.call import Call, Level, required
from penstock.server.management.errors import bad_request
from penstock.server.management.http import Response, as_json
from penstock.server.management.page import HEADERS
from penstock.server.management.routing import Route

if TYPE_CHECKING:
    from penstock.server.console import Console


def _console(call: Call) -> Console:
    return call.broker.overlay.console(call.vhost.name)


async def show(call: Call) -> Response:
    return as_json(_console(call).info())


async def run(call: Call) -> Response:
    """The commands in the body, a line each: what they answered, and why one failed, if one did.

    That one is the last that was run.
    """
    (command,) = required(await call.body(), "command")
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
        await _safe(call)
    return as_json({"output": "\n".join(answers), "error": failed})


async def _safe(call: Call) -> None:
    """Until what was said is on disk."""
    kernel = call.broker.kernel
    written: asyncio.Future[None] = kernel.loop.create_future()
    kernel.committer.after(lambda: written.set_result(None), written.set_exception)
    kernel.turn.end()
    await written


async def page(call: Call) -> Response:
    return Response(200, files(__package__).joinpath("console.html").read_bytes(), HEADERS)


routes: Final = (
    Route("GET", "/console", Level.ANYONE, page),
    Route("GET", "/api/content/{vhost}", Level.MONITORING, show),
    Route("POST", "/api/content/{vhost}/console", Level.ADMINISTRATOR, run),
)
