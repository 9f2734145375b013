"""A worker process: one event loop, the application on the inherited socket.

    python -m penstock_hives.server.worker FD

Settings are a line of JSON on standard input. The worker writes `ready` to standard output, then
`beat` with its metrics at intervals, so that the master can add them up, and replace a worker with
a blocked event loop. It drains on SIGTERM and when standard input ends, which means that the master
has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
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
from penstock.core.settings_model import build_settings
from penstock_hives.server.asgi import AsgiApplication
from penstock_hives.server.asgi_server import AsgiServer
from penstock_hives.server.settings import CONFIGURATION_EXIT, HEARTBEAT, READY, EngineSettings

log = get_logger(__name__)

#: Heartbeats within the timeout `silence`, and the longest interval: metrics are as old.
_HEARTBEATS: Final = 5
_HEARTBEAT_SECONDS: Final = 2.0

#: Options and the drain event → a context manager of the application.
Factory = Callable[[dict[str, Any], asyncio.Event], AbstractAsyncContextManager[AsgiApplication]]


def load_factory(application: str) -> Factory:
    module, _, name = application.partition(":")
    try:
        return cast(Factory, getattr(import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{application} is not an application factory: {error}") from error


async def run_worker(settings: EngineSettings, listener: socket.socket) -> None:
    draining = asyncio.Event()
    async with (
        _stop_requested() as stop,
        load_factory(settings.application)(settings.options, draining) as app,
    ):
        serving = AsgiServer(app, settings, draining)
        await serving.start(listener)
        _write_line(READY)
        seconds = min(settings.silence / _HEARTBEATS, _HEARTBEAT_SECONDS)
        beating = asyncio.create_task(_send_heartbeats(serving, seconds))
        try:
            await stop.wait()
            await serving.drain()
            _send_heartbeat(serving)
        finally:
            beating.cancel()


async def _send_heartbeats(serving: AsgiServer, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        _send_heartbeat(serving)


def _send_heartbeat(serving: AsgiServer) -> None:
    _write_line(f"{HEARTBEAT} {json.dumps(serving.report())}")


def _write_line(word: str) -> None:
    # The master may have ended; the end of standard input is handled elsewhere.
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{word}\n")
        sys.stdout.flush()


@contextlib.asynccontextmanager
async def _stop_requested() -> AsyncIterator[asyncio.Event]:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    watch, _ = await loop.connect_read_pipe(lambda: _ParentWatch(stop), sys.stdin)
    try:
        yield stop
    finally:
        watch.close()


class _ParentWatch(asyncio.Protocol):
    """The pipe is closed when the master ends, even by SIGKILL."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop.set()


def main(arguments: list[str]) -> int:
    settings = build_settings(EngineSettings, json.loads(sys.stdin.readline()))
    configure_logs(settings.log)
    raise_descriptor_limit()
    listener = socket.socket(fileno=int(arguments[0]))
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_worker(settings, listener))
    except ConfigurationError as error:
        log.error("worker configuration invalid", reason=str(error))
        return CONFIGURATION_EXIT
    return 0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed: it is faster for many small requests."""
    try:
        import uvloop
    except ImportError:
        return None
    return cast(Callable[[], asyncio.AbstractEventLoop], uvloop.new_event_loop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
