"""An application on a port of its own in this process, as a worker serves it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.core.settings_model import build_settings
from penstock_hives.server.asgi import AsgiApplication
from penstock_hives.server.asgi_server import AsgiServer
from penstock_hives.server.master import listener_url
from penstock_hives.server.settings import EngineSettings

#: For what a busy machine may take.
PATIENCE = 60.0


@asynccontextmanager
async def served(
    application: AsgiApplication, draining: asyncio.Event | None = None, **given: object
) -> AsyncIterator[str]:
    """Its URL."""
    settings = build_settings(
        EngineSettings, {"application": "given:here", "linger": 0.0, "drain": 5.0, **given}
    )
    serving = AsgiServer(application, settings, draining or asyncio.Event())
    listener = socket.create_server(("127.0.0.1", 0))
    await serving.start(listener)
    try:
        yield listener_url(listener)
    finally:
        await serving.drain()
