"""A worker: one process, one event loop, the application on the socket it was handed.

    python -m penstock_hives.server.worker FD

Its settings come as a line of JSON on standard input. On standard output it says `ready` once it
serves, then `beat` every so often: a worker whose loop stands still falls silent, and the master
replaces it. It drains on SIGTERM, and when standard input ends: whose master has died serves
nobody. Code is read when the process starts, so a new worker is new code.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Final, cast

from penstock.core.errors import ConfigurationError
from penstock.core.logs import configure_logs, get_logger
from penstock.core.resources import raise_descriptor_limit
from penstock_hives.server.asgi import AsgiApplication
from penstock_hives.server.asgi_server import AsgiServer
from penstock_hives.server.settings import EngineSettings

log = get_logger(__name__)

READY: Final = "ready"
HEARTBEAT: Final = "beat"
#: Beats in the time after which silence means that the loop stands still.
_HEARTBEATS: Final = 5
#: The exit status of a worker that cannot run as it is told.
CONFIGURATION_EXIT: Final = 2

#: From its options and the drain's event, an application for the length of the block.
Factory = Callable[[dict[str, Any], asyncio.Event], AbstractAsyncContextManager[AsgiApplication]]


def load_factory(application: str) -> Factory:
    module, _, name = application.partition(":")
    try:
        return cast(Factory, getattr(import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{application} is no application: {error}") from error


async def run_worker(settings: EngineSettings, listener: socket.socket) -> None:
    """Serve until told to drain; returns when that is done."""
    draining = asyncio.Event()
    async with (
        _stop_requested() as stop,
        load_factory(settings.application)(settings.options, draining) as app,
    ):
        serving = AsgiServer(app, settings, draining)
        await serving.start(listener)
        _write_line(READY)
        beating = asyncio.create_task(_send_heartbeats(settings.silence / _HEARTBEATS))
        try:
            await stop.wait()
            await serving.drain()
        finally:
            beating.cancel()


async def _send_heartbeats(seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        _write_line(HEARTBEAT)


def _write_line(word: str) -> None:
    # The master may have gone; the end of standard input tells of that.
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{word}\n")
        sys.stdout.flush()


@contextlib.asynccontextmanager
async def _stop_requested() -> AsyncIterator[asyncio.Event]:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    lifeline, _ = await loop.connect_read_pipe(lambda: _Lifeline(stop), sys.stdin)
    try:
        yield stop
    finally:
        lifeline.close()


class _Lifeline(asyncio.Protocol):
    """The master's end of the pipe goes with the master, however it went."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop.set()


def main(arguments: list[str]) -> int:
    settings = EngineSettings.model_validate_json(sys.stdin.readline())
    configure_logs(settings.log)
    raise_descriptor_limit()
    listener = socket.socket(fileno=int(arguments[0]))
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_worker(settings, listener))
    except ConfigurationError as error:
        log.error("worker cannot run", reason=str(error))
        return CONFIGURATION_EXIT
    return 0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: requests are small and many, which is what it is for."""
    try:
        import uvloop
    except ImportError:
        return None
    return cast(Callable[[], asyncio.AbstractEventLoop], uvloop.new_event_loop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
