"""The public keys of a token issuer (JWKS, RFC 7517), fetched over HTTPS and cached.

Keys are fetched when the first token arrives, when they are older than their lifetime, and when a
token names an unknown key: an issuer that rotates its keys needs no restart of the broker. Unknown
names cause one request in ten seconds at most. While the issuer is unreachable, known keys remain
in use.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from penstock.core.config import check_issuer_url
from penstock.core.errors import AuthenticationFailed
from penstock.core.logs import get_logger

#: Seconds between two requests that unknown keys cause.
MIN_FETCH_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 5.0
MAX_DOCUMENT_BYTES: Final = 1 << 20
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"

_log = get_logger("penstock.users")

Fetch = Callable[[str], Any]


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetch_json(
    url: str,
    authority: Path | None = None,
    *,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """A JSON document; blocks. With content, it is the answer to a POST."""
    context = ssl.create_default_context(cafile=authority)
    opener = build_opener(_NoRedirects(), HTTPSHandler(context=context), ProxyHandler({}))
    request = Request(url, content, {"accept": "application/json", **(headers or {})})  # noqa: S310
    with opener.open(request, timeout=REQUEST_SECONDS) as response:
        document = response.read(MAX_DOCUMENT_BYTES + 1)
    if len(document) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"the document is larger than {MAX_DOCUMENT_BYTES} bytes")
    return json.loads(document)


class JsonWebKeySet:
    """`find` returns a key as the JSON object that the issuer published."""

    def __init__(
        self,
        *,
        issuer: str,
        url: str,
        lifetime: float,
        fetch: Fetch = fetch_json,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a URL, the issuer's metadata names it."""
        self._issuer = issuer
        self._url = url
        self._lifetime = lifetime
        self._fetch = fetch
        self._clock = clock
        self._keys: list[dict[str, Any]] = []
        self._fetched_at = -float("inf")
        self._tried_at = -float("inf")
        self._running: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, key_type: str) -> dict[str, Any]:
        """The key with this id; without an id, the only key of the type."""
        found = self._find(key_id, key_type)
        stale = self._clock() - self._fetched_at > self._lifetime
        if (found is None or stale) and self._may_fetch():
            await self._refresh()
            found = self._find(key_id, key_type)
        if found is None:
            named = f"key {key_id!r}" if key_id is not None else "single key"
            raise AuthenticationFailed(f"the issuer has no {named} of type {key_type}")
        return found

    def _find(self, key_id: str | None, key_type: str) -> dict[str, Any] | None:
        keys = [key for key in self._keys if key.get("kty") == key_type]
        if key_id is not None:
            keys = [key for key in keys if key.get("kid") == key_id]
        return keys[0] if len(keys) == 1 else None

    def _may_fetch(self) -> bool:
        return self._running is not None or self._clock() - self._tried_at >= MIN_FETCH_SECONDS

    async def _refresh(self) -> None:
        """Callers that wait for keys share one request."""
        if self._running is None:
            self._tried_at = self._clock()
            self._running = asyncio.get_running_loop().create_task(self._replace_keys())
        await asyncio.shield(self._running)

    async def _replace_keys(self) -> None:
        try:
            self._keys = await asyncio.to_thread(self._download)
            self._fetched_at = self._clock()
        except (OSError, ValueError, RecursionError) as error:
            _log.error("keys of the token issuer not fetched", error=str(error))
        finally:
            self._running = None

    def _download(self) -> list[dict[str, Any]]:
        url = self._url
        if not url:
            metadata = self._fetch(self._issuer.rstrip("/") + DISCOVERY_PATH)
            if not isinstance(metadata, dict) or metadata.get("issuer") != self._issuer:
                raise ValueError(f"the metadata of {self._issuer} names another issuer")
            url = check_issuer_url(str(metadata.get("jwks_uri", "")))
        document = self._fetch(url)
        keys = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(keys, list):
            raise ValueError(f"{url}: expected an object with the list 'keys'")
        return [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig"]
