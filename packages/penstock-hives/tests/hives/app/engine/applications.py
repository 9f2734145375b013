"""Applications to run: they say who answers; asked to, they wait, die or stand still."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.core.errors import ConfigurationError
from penstock_hives.server.asgi import AsgiApplication, Receive, Scope, Send, send_response


@asynccontextmanager
async def who(options: dict[str, Any], draining: asyncio.Event) -> AsyncIterator[AsgiApplication]:
    """`/` says which process this is and what it was told; other paths are for mischief."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/die":
                os._exit(7)
            case "/stand-still":
                time.sleep(3600)  # noqa: ASYNC251 - that is the mischief
            case "/slow":
                Path(options["began"]).write_text(str(os.getpid()))
                while not Path(options["go"]).exists():  # noqa: ASYNC110 - across processes
                    await asyncio.sleep(0.01)
            case "/stream":
                await _stream(send, draining)
                return
        body = f"{os.getpid()} {options.get('greeting', '')}".encode()
        await send_response(send, 200, [(b"content-length", str(len(body)).encode())], body)

    yield application


async def _stream(send: Send, draining: asyncio.Event) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
    await draining.wait()
    await send({"type": "http.response.body", "body": b"last\n"})


def impossible(
    options: dict[str, Any], draining: asyncio.Event
) -> AbstractAsyncContextManager[AsgiApplication]:
    raise ConfigurationError("nothing here can be run")
