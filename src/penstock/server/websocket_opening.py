"""A WebSocket's opening handshake: an HTTP request in, the response to it out. No I/O.

The request is gathered up to a bound and then judged by the `websockets` library: a GET for a path
we have, an upgrade, a subprotocol we speak. Compression is not agreed to. A browser connects for
the page of any site: which names and sites are answered is for a `HostPolicy` to say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from penstock.core.errors import AccessRefused
from penstock.core.host_policy import HostPolicy

#: A request with its headers; the library has its own limits for a line and their number.
HEAD_BYTES: Final = 16 * 1024

_METHOD: Final = b"GET "
_END: Final = b"\r\n\r\n"
#: What counts in a request is ASCII; the library stumbles where it quotes anything else.
_ASCII: Final = bytes(range(128)) + b"?" * 128


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to answer; with a subprotocol the WebSocket is open, without one it is refused."""

    response: bytes
    subprotocol: str | None = None
    rest: bytes = b""  #: what came after the request


class Opening:
    __slots__ = ("_head", "_paths", "_policy", "_subprotocols")

    def __init__(
        self, subprotocols: Sequence[str], paths: Collection[str], policy: HostPolicy
    ) -> None:
        """The first subprotocol that a client offers as well is the one it gets."""
        self._policy = policy
        self._subprotocols = subprotocols
        self._paths = paths
        self._head = bytearray()

    def feed(self, data: bytes) -> Verdict | None:
        """The verdict, once the request is whole or cannot become one."""
        head = self._head
        head += data
        if not head.startswith(_METHOD[: len(head)]):
            return self._refused(HTTPStatus.BAD_REQUEST, "Only a WebSocket client is answered here")
        end = head.find(_END, 0, HEAD_BYTES)
        if end >= 0:
            end += len(_END)
            return self._judged(bytes(head[:end]), bytes(head[end:]))
        if len(head) < HEAD_BYTES:
            return None
        return self._refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"A request here has less than {HEAD_BYTES} bytes",
        )

    def _judged(self, head: bytes, rest: bytes) -> Verdict:
        library = self._library()
        library.receive_data(head.translate(_ASCII))
        match library.events_received():
            case [Request() as request]:
                pass
            case _:  # the library would hang up without a word
                return self._refused(HTTPStatus.BAD_REQUEST, "This is no HTTP/1.1 request")
        if request.path.partition("?")[0] not in self._paths:
            known = ", ".join(sorted(self._paths))
            return self._refused(HTTPStatus.NOT_FOUND, f"There is no such path; there is {known}")
        try:
            self._check(request)
        except AccessRefused as error:
            return self._refused(HTTPStatus.FORBIDDEN, str(error))
        response = library.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            return Verdict(response.serialize())
        return Verdict(response.serialize(), library.subprotocol, rest)

    def _check(self, request: Request) -> None:
        hosts = request.headers.get_all("Host")
        for host in hosts:
            self._policy.check_host(host)
        for origin in request.headers.get_all("Origin"):
            self._policy.check_origin(origin, hosts[0] if hosts else None)

    def _refused(self, status: HTTPStatus, reason: str) -> Verdict:
        return Verdict(self._library().reject(status, f"{reason}.\n").serialize())

    def _library(self) -> ServerProtocol:
        return ServerProtocol(subprotocols=[Subprotocol(name) for name in self._subprotocols])
