"""`/api/overlay`: the brokers that route together, and what they are told; `/overlay`: its page."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from penstock.server.management.call import Call, Level, required
from penstock.server.management.errors import bad_request
from penstock.server.management.http import DONE, Response, as_json
from penstock.server.management.page import HEADERS
from penstock.server.management.routing import Route


async def show(call: Call) -> Response:
    """The brokers that have been heard of. All are asked again, so the next answer is fresher."""
    found = call.broker.overlay.federation().look()
    call.done()
    return as_json(found)


async def tell(call: Call) -> Response:
    """Have a broker do something: STOP, RESUME, SHUTDOWN, or one of the overlay's own commands."""
    told = await call.body()
    broker, command = required(told, "broker", "command")
    other = told.get("other", "")
    if not all(isinstance(one, str) for one in (broker, command, other)):
        raise bad_request("broker, command and other: strings are expected")
    if "-" not in command:
        command = f"LIFECYCLE-{command}"
    call.broker.overlay.federation().tell(broker, command, other)
    call.done()
    return DONE


async def set_heartbeats(call: Call) -> Response:
    (enabled,) = required(await call.body(), "enabled")
    if not isinstance(enabled, bool):
        raise bad_request("enabled: true or false is expected")
    call.broker.overlay.federation().set_heartbeats(enabled)
    call.done()
    return DONE


async def page(call: Call) -> Response:
    return Response(200, files(__package__).joinpath("overlay.html").read_bytes(), HEADERS)


routes: Final = (
    Route("GET", "/overlay", Level.ANYONE, page),
    Route("GET", "/api/overlay", Level.MONITORING, show),
    Route("POST", "/api/overlay", Level.ADMINISTRATOR, tell),
    Route("PUT", "/api/overlay/heartbeats", Level.ADMINISTRATOR, set_heartbeats),
)
