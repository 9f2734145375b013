"""`/api/sections`: pages of the console that installed packages contribute.

Calls are answered by a process of their own (`section_process.py`), which is started for the first
call and ends when it is idle. Reading needs the tag `monitoring`, a call that changes something
(POST) the tag `administrator`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.console import static_response
from penstock.server.management.http import ApiError, HttpResponse, json_response
from penstock.server.management.section_process import GROUP

if TYPE_CHECKING:
    from penstock.server.broker import Broker

#: How long a call may take, and how long the process stays without one.
CALL_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 120.0
_LINE_BYTES: Final = 16 << 20

_log = get_logger("penstock.management")


@cache
def installed_sections() -> dict[str, str]:
    """Section → the package that has its pages."""
    from importlib.metadata import entry_points  # a broker starts without it

    return {
        entry.name: entry.module.partition(".")[0]
        for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    }


class SectionProcess:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._starting = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None

    async def call(self, section: str, name: str, arguments: dict[str, Any]) -> Any:
        async with self._starting:
            process = self._process
            if process is None or process.returncode is not None:
                process = await self._start()
        self._number += 1
        number = self._number
        answer = self._waiting[number] = self._broker.kernel.loop.create_future()
        request = {"id": number, "section": section, "call": name, "arguments": arguments}
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        self._postpone_end()
        try:
            found = await asyncio.wait_for(answer, CALL_SECONDS)
        except TimeoutError:
            raise ApiError(503, "timeout", f"section {section} does not answer") from None
        finally:
            self._waiting.pop(number, None)
        if "result" not in found:
            raise ApiError(found["status"], "section_error", found["reason"])
        return found["result"]

    async def _start(self) -> asyncio.subprocess.Process:
        broker = self._broker

        def local(scheme: str) -> str:
            found = (one for one in broker.addresses if one.startswith(f"{scheme}://"))
            return next(found, "")

        context = {
            "data": str(broker.data),
            "broker": local("amqp"),
            "management": local("http"),
        }
        module = "penstock.server.management.section_process"
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, json.dumps(context)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        self._reading = broker.kernel.loop.create_task(self._read(process))
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            answer = json.loads(line)
            waiting = self._waiting.get(answer["id"])
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result({"status": 503, "reason": "the section's process has ended"})

    def _postpone_end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._broker.kernel.loop.call_later(IDLE_SECONDS, self._end)

    def _end(self) -> None:
        """It ends with its input."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        process = self._process
        self._end()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._reading is not None:
            await self._reading


async def list_sections(call: ApiCall) -> HttpResponse:
    """List the sections of the console that installed packages add and the user may open."""
    names = installed_sections() if call.allows(AccessLevel.MONITORING) else ()
    return json_response([{"name": name, "module": f"/sections/{name}.js"} for name in names])


async def section_file(call: ApiCall) -> HttpResponse:
    name = call.names["file"].removesuffix(".js")
    package = installed_sections().get(name)
    if package is None:
        raise NotFound("Not Found")
    return static_response(package, f"{name}-section.js", call.request)


def _section(call: ApiCall) -> str:
    if call.names["section"] not in installed_sections():
        raise NotFound(f"no section '{call.names['section']}'")
    return call.names["section"]


async def read_section(call: ApiCall) -> HttpResponse:
    """Call a section of the console that reads."""
    name, arguments = call.names["call"], dict(call.request.query)
    if name.startswith("do-"):
        raise NotFound(f"'{name}' changes something: use POST")
    return json_response(await call.sections.call(_section(call), name, arguments))


async def change_section(call: ApiCall) -> HttpResponse:
    """Call a section of the console that changes something."""
    name = f"do-{call.names['call']}"
    return json_response(await call.sections.call(_section(call), name, await call.body()))


_CALL: Final = "/api/sections/{section}/{call}"

routes: Final = (
    ApiRoute("GET", "/sections/{file}", section_file, AccessLevel.ANYONE),
    ApiRoute("GET", "/api/sections", list_sections),
    ApiRoute("GET", _CALL, read_section, AccessLevel.MONITORING),
    ApiRoute("POST", _CALL, change_section, AccessLevel.ADMINISTRATOR),
)
