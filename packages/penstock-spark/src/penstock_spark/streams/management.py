"""Requests to a broker's management API, from a driver or a worker.

The standard library's client: a request for each range or listing is all there is, and a worker
should not have to import more. Errors come as they do over AMQP: what another attempt may cure is
an `OSError`, everything else is named in `penstock.core.errors`.
"""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from penstock.client.url import create_tls_context
from penstock.core.errors import AccessRefused, ConfigurationError, NotFound, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.wire.amqp091.address import AmqpAddress

#: Between two reads, not for a whole answer.
TIMEOUT_SECONDS: Final = 60.0


class StreamManagementClient:
    """The API at a URL, spoken to as the user of a broker's address."""

    def __init__(self, url: str, address: AmqpAddress) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(
                f"managementUrl: {_without_credentials(url)} is no http:// or https:// URL"
            )
        self._parts = parts
        self._address = address
        secret = f"{address.user}:{address.password}".encode()
        self._headers = {
            "authorization": f"Basic {base64.b64encode(secret).decode()}",
            "accept-encoding": "identity",
        }

    def __str__(self) -> str:
        return _without_credentials(self._parts.geturl())

    @contextmanager
    def get(
        self, path: str, query: dict[str, str | int], verb: str = "GET"
    ) -> Iterator[HTTPResponse]:
        """The answer to a request, whatever its status; to be read before the block ends."""
        connection = self._connection()
        try:
            target = f"{self._parts.path.rstrip('/')}{path}"
            connection.request(verb, f"{target}?{urlencode(query)}", headers=self._headers)
            yield connection.getresponse()
        except HTTPException as error:
            # A broker that was killed in the middle of an answer, and its like.
            raise ConnectionResetError(f"{self}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()

    def get_json(self, path: str, query: dict[str, str | int]) -> Any:
        with self.get(path, query) as answer:
            self.check(answer)
            return json.loads(answer.read())

    def check(self, answer: HTTPResponse) -> None:
        """Raises unless the answer is what was asked for."""
        if answer.status < 300:
            return
        reason = self.reason(answer).get("reason") or answer.reason
        words = f"{self}: {reason} ({answer.status})"
        if answer.status in (401, 403):
            raise AccessRefused(f"{words}; asked as user {self._address.user!r}")
        if answer.status == 404:
            raise NotFound(words)
        if answer.status >= 500:
            raise ConnectionAbortedError(words)
        raise ProtocolError(words)

    @staticmethod
    def reason(answer: HTTPResponse) -> dict[str, Any]:
        """What an error's body says; an empty one when it is no JSON object."""
        try:
            said = json.loads(answer.read())
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    def _connection(self) -> HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        context = create_tls_context(self._address.authorities)
        return HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


def _without_credentials(url: str) -> str:
    """A URL without whatever name and password stand in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
