"""One request to the management API, with the standard library, for the command line."""

from __future__ import annotations

import base64
import json
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from penstock.core.config import BrokerSettings
from penstock.core.errors import AccessRefused, ConfigurationError, NotFound, PenstockError

TIMEOUT_SECONDS: Final = 10.0


def management_url(settings: BrokerSettings, url: str | None) -> str:
    """The given URL, or the first HTTP listener of the configuration."""
    if url is not None:
        return url
    for address in settings.listen:
        if address.startswith("http"):
            return address
    raise ConfigurationError("broker.listen has no http:// address; set --url")


def call_management_api(url: str, path: str, body: Any = None) -> Any:
    """GET a path, or POST if there is a body."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"--url {url}: should be http://user:password@host:port")
    host = parts.netloc.rpartition("@")[2]
    user, password = (
        "guest" if each is None else unquote(each) for each in (parts.username, parts.password)
    )
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    request = Request(
        f"{parts.scheme}://{host}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    # Not sent to the target of a redirect.
    request.add_unredirected_header("authorization", f"Basic {credentials}")
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            content = answer.read()
    except HTTPError as error:
        raise _refusal(error, f"{parts.scheme}://{host}{path}", user) from error
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(
            f"no answer from {parts.scheme}://{host}: {reason}; is a broker running there? "
            "`penstock up` starts one"
        ) from error
    return json.loads(content) if content else None


def _refusal(error: HTTPError, address: str, user: str) -> PenstockError:
    if error.code in (401, 403):
        return AccessRefused(f"{address}: access refused for user {user!r}: {error.reason}")
    if error.code == 404:
        return NotFound(f"{address}: not found")
    return PenstockError(f"{address}: {error.code} {error.reason}: {error.read(1000).decode()}")
