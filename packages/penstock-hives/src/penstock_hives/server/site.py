"""The site of one worker: ASGI behind the check of host names, and immediate responses.

Pages, files and cached public reads are answered immediately, if the request has no credentials and
its host name was allowed before. Everything else goes to the router.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.core.host_policy import HostPolicy, HostPolicyMiddleware
from penstock_hives.public.page import INDEX
from penstock_hives.public.reader import PublicReader
from penstock_hives.public.view import CachedPage
from penstock_hives.server.asgi import AsgiApplication, Receive, Scope, Send
from penstock_hives.server.http_protocol import ImmediateResponse

#: Requests with these headers are not answered immediately.
_OTHERWISE: Final = frozenset(
    {b"authorization", b"x-api-key", b"content-length", b"transfer-encoding", b"expect"}
)


class HivesSite:
    def __init__(
        self,
        router: AsgiApplication,
        policy: HostPolicy,
        reader: PublicReader,
        files: Mapping[str, CachedPage],
        figures: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`figures` are counts and gauges for metrics."""
        self.figures = figures
        self._application = HostPolicyMiddleware(router, policy)
        self._policy = policy
        self._cached = reader.cached
        self._files = {path.encode(): page for path, page in files.items()}
        if INDEX in files:
            self._files[b"/"] = files[INDEX]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._application(scope, receive, send)

    def respond(
        self, target: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> ImmediateResponse | None:
        location = "page"
        page = self._files.get(target)
        if page is None:
            location = "public"
            page = self._cached(target.decode("latin-1"))
            if page is None:
                return None
        known: bytes | None = None
        gzipped = is_allowed = False
        for name, value in headers:
            if name == b"host":
                is_allowed = self._policy.has_allowed(value.decode("latin-1"))
                if not is_allowed:
                    return None
            elif name == b"if-none-match":
                known = value
            elif name == b"accept-encoding":
                gzipped = b"gzip" in value
            elif name in _OTHERWISE:
                return None
        return page.select(known, gzipped).immediate(location) if is_allowed else None
