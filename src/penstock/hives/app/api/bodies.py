"""How large a request may be: counted as it comes, refused when it is too much.

What a client says its length is is believed only to refuse early.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.errors import ContentTooLarge
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
        refusal = problem(413, f"a body has at most {limit:,} bytes")
        if _announced(scope) > limit:
            await refusal(scope, receive, send)
            return
        taken = 0
        started = False

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > limit:
                    raise ContentTooLarge(f"a body has at most {limit:,} bytes")
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except ContentTooLarge:
            if started:
                raise
            await refusal(scope, receive, send)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
