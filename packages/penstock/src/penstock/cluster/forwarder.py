"""A follower's listeners: they forward clients to the leader, byte by byte.

TLS passes through, so the leader's certificate must be valid for the follower's name, too. Without
a leader, connections are closed, and clients try again as they do with any broker. What
`/api/cluster` and `/metrics` say is of the follower itself, which can also be promoted.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.core.addresses import ListenAddress, parse_address
from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock.core.metrics import EXPOSITION_TYPE
from penstock.core.proxy_protocol import TrustedProxies, encode_proxy_header

READ_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 3.0
MAX_HEAD_BYTES: Final = 16 * 1024
LOCAL_PATHS: Final = (b"/api/cluster", b"/api/cluster/promote", b"/metrics")
#: Reason codes of MQTT 5.
MQTT_REDIRECTIONS: Final = {"use-another-server": 0x9C, "server-moved": 0x9D}

_log = get_logger("penstock.cluster")


class LocalRequest(NamedTuple):
    """A request about the cluster or this member, which the follower answers."""

    method: str
    path: str
    user: str
    password: bytes
    authorization: str
    body: dict[str, Any]
    peer: str


#: Returns the status, and JSON or Prometheus' text.
LocalHandler = Callable[[LocalRequest], Awaitable[tuple[int, dict[str, Any] | bytes]]]


class Forwarder:
    def __init__(
        self,
        listen: Sequence[ListenAddress],
        answer: LocalHandler,
        proxies: TrustedProxies,
        mqtt_redirection: str = "none",
    ) -> None:
        """`mqtt_redirection` is the name of a reason code for MQTT 5 clients."""
        self._listen = listen
        self._answer = answer
        self._proxies = proxies
        self._redirection = MQTT_REDIRECTIONS.get(mqtt_redirection)
        self._sends_header = False
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._leader: list[ListenAddress] = []
        self.forwarded = 0  #: open connections to the leader

    async def open(self) -> list[ListenAddress]:
        """Listen; returns the addresses with their actual ports."""
        actual = []
        for index, address in enumerate(self._listen):
            try:
                server = await asyncio.start_server(
                    partial(self._connected, index),
                    address.host,
                    address.port,
                )
            except OSError as error:
                await self.close()
                raise ConfigurationError(f"cannot listen on {address}: {error.strerror}") from error
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
            actual.append(ListenAddress(address.scheme, address.host, port))
        self._listen = actual  # also when it is opened again
        return actual

    def to(self, leader: Sequence[str], sends_header: bool = False) -> None:
        """Forward new connections to these addresses of the leader, none if empty; with a PROXY
        header, if it accepts them."""
        self._leader = [parse_address(address) for address in leader]
        self._sends_header = sends_header

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(
        self, index: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(self._listen[index], index, reader, writer)
        except (OSError, EOFError, TimeoutError, ValueError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _serve(
        self,
        address: ListenAddress,
        index: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        received = b""
        if address.scheme == "http":
            received = await _read_head(reader)
            path = b"".join(received.split(b" ", 2)[1:2]).partition(b"?")[0]
            if path.startswith(b"/metrics/") or path in LOCAL_PATHS:
                await self._answer_locally(received, reader, writer)
                return
        target = self._target(address, index)
        if target is None:
            if address.scheme == "http":
                reason = {"error": "service_unavailable", "reason": "the cluster has no leader"}
                await _respond(writer, 503, reason)
            return
        if address.scheme == "mqtt" and self._redirection is not None:
            received = await reader.read(READ_BYTES)
            if _is_mqtt5(received):
                writer.write(_redirect(self._redirection, target))
                await writer.drain()
                return
        async with asyncio.timeout(CONNECT_SECONDS):
            from_leader, to_leader = await asyncio.open_connection(target.host, target.port)
        self.forwarded += 1
        try:
            client = writer.get_extra_info("peername")
            # A trusted proxy has sent a header of its own.
            if self._sends_header and client and client[0] not in self._proxies:
                leader = to_leader.get_extra_info("peername")
                to_leader.write(encode_proxy_header(client[:2], leader[:2]))
            to_leader.write(received)
            await asyncio.gather(_copy(reader, to_leader), _copy(from_leader, writer))
        finally:
            self.forwarded -= 1
            to_leader.transport.abort()

    def _target(self, address: ListenAddress, index: int) -> ListenAddress | None:
        """The leader's address of the same scheme, at the same place among several."""
        same = [one for one in self._leader if one.scheme == address.scheme]
        if not same:
            return None
        place = sum(one.scheme == address.scheme for one in self._listen[:index])
        return same[min(place, len(same) - 1)]

    async def _answer_locally(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request_head, _, body = head.partition(b"\r\n\r\n")
        method, path, _ = request_head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        headers = {}
        for line in request_head.decode("latin-1").split("\r\n")[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = min(int(headers.get("content-length") or 0), MAX_HEAD_BYTES)
        while len(body) < length:
            more = await reader.read(length - len(body))
            if not more:
                return
            body += more
        authorization = headers.get("authorization", "")
        user, _, password = _decode_basic(authorization).partition(b":")
        peer = writer.get_extra_info("peername") or ("",)
        fields = json.loads(body) if body.strip() else {}
        request = LocalRequest(
            method,
            path.split("?")[0],
            user.decode("utf-8", "replace"),
            password,
            authorization,
            fields if isinstance(fields, dict) else {},
            peer[0],
        )
        status, answer = await self._answer(request)
        await _respond(writer, status, answer)


def _is_mqtt5(packet: bytes) -> bool:
    """Whether it begins with a CONNECT of MQTT 5."""
    at = 1
    while at < min(len(packet), 5) and packet[at] & 0x80:  # the length of the packet
        at += 1
    return packet[:1] == b"\x10" and packet[at + 1 : at + 8] == b"\x00\x04MQTT\x05"


def _redirect(code: int, target: ListenAddress) -> bytes:
    """A CONNACK with a server reference."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    reference = f"{host}:{target.port}".encode()
    properties = b"\x1c" + len(reference).to_bytes(2, "big") + reference
    body = bytes((0, code, len(properties))) + properties
    return bytes((0x20, len(body))) + body


def _decode_basic(authorization: str) -> bytes:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error):
            return base64.b64decode(encoded, validate=True)
    return b""


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received and len(received) < MAX_HEAD_BYTES:
        data = await reader.read(READ_BYTES)
        if not data:
            break
        received += data
    return received


async def _respond(writer: asyncio.StreamWriter, status: int, body: dict[str, Any] | bytes) -> None:
    is_text = isinstance(body, bytes)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = EXPOSITION_TYPE if is_text else "application/json"
    head = f"HTTP/1.1 {status} \r\ncontent-type: {kind}\r\nconnection: close\r\n"
    writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(READ_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
