"""The fast path: reads by callers that show nothing are answered here, before any framework.

A read of ours without a token or a key is answered from the window, or refused: it never goes on to
what could ask the database. Everything else goes on.
"""

from __future__ import annotations

from penstock.core.errors import PenstockError
from penstock.hives.app.api.problems import explain
from penstock.hives.app.engine.asgi import Application, Receive, Scope, Send
from penstock.hives.app.public.answers import Answers


def fast_path(answers: Answers, others: Application) -> Application:
    find = answers.find

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await others(scope, receive, send)
            return
        known: bytes | None = None
        zipped = False
        for name, value in scope["headers"]:
            if name in (b"authorization", b"x-api-key"):
                await others(scope, receive, send)
                return
            if name == b"if-none-match":
                known = value
            elif name == b"accept-encoding":
                zipped = b"gzip" in value
        try:
            page = find(scope["path"], scope["query_string"].decode("latin-1"))
        except PenstockError as error:
            await explain(error)(scope, receive, send)
            return
        if page is None:
            await others(scope, receive, send)
        else:
            await page.send(send, known, zipped)

    return application
