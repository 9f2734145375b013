"""How large a request may be: counted as it comes, refused when it is too much.

What a client says its length is is believed only to refuse early.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.units import parse_count
from penstock.hives.app.api.problems import problem


class BodyLimit:
    """A layer of ASGI in front of the application."""

    def __init__(self, app: ASGIApp, limit: int, uploads: int) -> None:
        """Uploads of pictures may be larger than other bodies."""
        self._app = app
        self._limit = limit
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A form has a few hundred bytes beside the picture in it.
        upload = scope["method"] == "POST" and scope["path"].endswith("/images")
        limit = self._uploads + 4096 if upload else self._limit
        words = f"a body has at most {limit:,} bytes"
        if _announced(scope) > limit:
            await problem(413, words)(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > limit:
                    # FastAPI hands on no other kind from where it reads bodies.
                    raise HTTPException(413, words)
            return message

        await self._app(scope, counted, send)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return parse_count(value.decode("latin-1")) or 0
    return 0
