"""A client of the management API of Penstock and RabbitMQ: blocking requests, JSON answers.

It uses the standard library's HTTP client, because commands and Spark workers make few requests and
should import little. An error that a retry may cure is an `OSError`; all others are named in
`penstock.core.errors`. Redirects are not followed, so that no other server gets the password.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlencode, urlsplit

from penstock.client.url import create_tls_context
from penstock.core.errors import (
    AccessRefused,
    ConfigurationError,
    NotFound,
    PenstockError,
    ProtocolError,
)

if TYPE_CHECKING:
    from penstock.core.config import BrokerSettings

#: Of commands: for each read of an answer.
TIMEOUT_SECONDS: Final = 10.0


class ManagementServerError(PenstockError, ConnectionError):
    """The management API answered with a server error."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason  #: as the server words it


class ManagementClient:
    """The API below a URL."""

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        *,
        authorities: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """`authorities` is a file of trusted certificates instead of the system's."""
        parts = urlsplit(url)
        self._parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"{self} is not an http:// or https:// URL")
        self._user = user
        self._authorities = authorities
        self._timeout = timeout
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {
            "authorization": f"Basic {credentials}",
            "accept-encoding": "identity",
            "content-type": "application/json",
        }

    def __str__(self) -> str:
        return self._parts.geturl()

    @contextmanager
    def request(
        self,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        method: str = "GET",
        body: Any = None,
    ) -> Iterator[HTTPResponse]:
        """The answer, whatever its status; to be read before the block ends."""
        connection = self._connection()
        try:
            target = f"{self._parts.path.rstrip('/')}{path}"
            content = None if body is None else json.dumps(body).encode()
            connection.request(
                method, f"{target}?{urlencode(query)}" if query else target, content, self._headers
            )
            yield connection.getresponse()
        except HTTPException as error:  # such as an answer that is cut short
            raise ConnectionResetError(f"{self}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()

    def get_json(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        with self.request(path, query) as answer:
            self.check(answer)
            return json.loads(answer.read())

    def check(self, answer: HTTPResponse) -> None:
        """Raise an error unless the status is one of success."""
        if answer.status < 300:
            return
        reason = str(self.error_body(answer).get("reason") or answer.reason)
        text = f"{self}: {reason} ({answer.status})"
        if answer.status in (401, 403):
            raise AccessRefused(f"{text}; as user {self._user!r}")
        if answer.status == 404:
            raise NotFound(text)
        if answer.status >= 500:
            raise ManagementServerError(text, reason)
        raise ProtocolError(text)

    @staticmethod
    def error_body(answer: HTTPResponse) -> dict[str, Any]:
        """The body of an error; empty unless it is a JSON object."""
        try:
            found = json.loads(answer.read())
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _connection(self) -> HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return HTTPConnection(host, port, timeout=self._timeout)
        context = create_tls_context(self._authorities)
        return HTTPSConnection(host, port, timeout=self._timeout, context=context)


def management_url(settings: BrokerSettings, url: str | None) -> str:
    """The given URL, or the first HTTP listener of the configuration."""
    if url is not None:
        return url
    for address in settings.listen:
        if address.startswith("http"):
            return address
    raise ConfigurationError("broker.listen has no http:// address; say which with --url")


@contextmanager
def connect_management_api(
    url: str, timeout: float = TIMEOUT_SECONDS
) -> Iterator[ManagementClient]:
    """A client of the API at a URL with credentials; errors of connections name the server."""
    parts = urlsplit(url)
    user, password = (
        "guest" if each is None else unquote(each) for each in (parts.username, parts.password)
    )
    try:
        address = parts._replace(path="", query="").geturl()
        client = ManagementClient(address, user, password, timeout=timeout)
    except ConfigurationError:
        raise ConfigurationError(f"--url {url}: should be http://user:password@host:port") from None
    try:
        yield client
    except PenstockError:
        raise
    except OSError as error:
        raise ConnectionError(
            f"no answer from {client}: {error.strerror or error}; is a broker running there? "
            "`penstock up` starts one"
        ) from error


def call_management_api(url: str, path: str, body: Any = None, method: str = "") -> Any:
    """GET a path, or POST to it if there is a body; `url` has the credentials."""
    method = method or ("GET" if body is None else "POST")
    with (
        connect_management_api(url) as client,
        client.request(path, method=method, body=body) as answer,
    ):
        client.check(answer)
        content = answer.read()
    return json.loads(content) if content else None
