"""An application on a port of its own in this process, as a worker serves it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.hives.app.engine.asgi import Application
from penstock.hives.app.engine.master import address
from penstock.hives.app.engine.serving import Serving
from penstock.hives.app.engine.settings import EngineSettings

#: For what a busy machine may take.
PATIENCE = 60.0


@asynccontextmanager
async def served(
    application: Application, draining: asyncio.Event | None = None, **given: object
) -> AsyncIterator[str]:
    """Its URL."""
    settings = EngineSettings.model_validate(
        {"application": "given:here", "linger": 0.0, "drain": 5.0, **given}
    )
    serving = Serving(application, settings, draining or asyncio.Event())
    listener = socket.create_server(("127.0.0.1", 0))
    await serving.start(listener)
    try:
        yield address(listener)
    finally:
        await serving.drain()
