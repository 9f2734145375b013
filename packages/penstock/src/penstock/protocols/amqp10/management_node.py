"""The management node of AMQP 1.0: clients declare, bind and delete through it, as in RabbitMQ 4.

A client attaches two links of one name to `/management`, one in each direction. A request is a
message with a method as its subject (`PUT`), a path as its address (`/queues/orders`) and a map as
its body. The response has a status as its subject and the request's id as its correlation id. All
requests need the same permissions as in AMQP 0-9-1.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote

from penstock.broker.declarations import properties_key
from penstock.core.errors import (
    AccessRefused,
    NotAllowed,
    NotFound,
    PenstockError,
    PreconditionFailed,
    ResourceLocked,
)
from penstock.wire.amqp10.codec import skip
from penstock.wire.amqp10.errors import MESSAGE_TOO_LARGE, PRECONDITION_FAILED, LinkFault
from penstock.wire.amqp10.links import SenderLink
from penstock.wire.amqp10.message import (
    Amqp10Message,
    Amqp10Properties,
    AmqpValue,
    decode_message,
    encode_message,
    section_at,
)
from penstock.wire.amqp10.performatives import ACCEPTED
from penstock.wire.amqp10.values import UInt, ULong

if TYPE_CHECKING:
    from penstock.broker.contract import Binding, Exchange, Queue
    from penstock.protocols.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import IncomingDelivery, ReceiverLink

MANAGEMENT_ADDRESS: Final = "/management"
MAX_REQUEST_BYTES: Final = 1 << 20
#: Requests in transit, and responses that wait for credit.
REQUEST_CREDIT: Final = 100

#: The status of errors; of others 400.
_STATUS: Final[dict[type[PenstockError], int]] = {
    AccessRefused: 403,
    NotAllowed: 403,
    NotFound: 404,
    PreconditionFailed: 409,
    ResourceLocked: 409,
}

Response = tuple[int, Any]


class ManagementResponses:
    """The context of the link on which a client receives."""

    __slots__ = ("_waiting", "link")

    def __init__(self, link: SenderLink) -> None:
        self.link = link
        self._waiting: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, payload: bytes) -> None:
        self._waiting.append(payload)
        self.send()

    def send(self) -> None:
        link = self.link
        while self._waiting and link.live and link.credit > 0 and not link.session.waits:
            link.send(link.new(True), self._waiting.popleft())
        if link.live and link.draining and link.credit > 0:
            link.drained()


class ManagementRequests:
    """The context of the link on which a client sends."""

    __slots__ = ("_parts", "_renewal", "_terminal", "link", "unsettled")

    def __init__(self, terminal: Amqp10Terminal, link: ReceiverLink) -> None:
        self._terminal = terminal
        self.link = link
        self.unsettled = 0  #: none: a request is settled when it is complete
        self._parts: list[bytes] = []
        self._renewal: asyncio.Task[None] | None = None  #: of the credentials

    def receive(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        self._parts.append(payload)
        if sum(map(len, self._parts)) > MAX_REQUEST_BYTES:
            raise LinkFault(MESSAGE_TOO_LARGE, f"request is larger than {MAX_REQUEST_BYTES} bytes")
        if more:
            return
        request = decode_message(_in_order(b"".join(self._parts)))
        self._parts.clear()
        responses = self._paired()
        if not delivery.settled:
            delivery.settle(ACCEPTED)
        if is_token_request(request):
            self._renewal = self._terminal.host.kernel.loop.create_task(
                self._renew(responses, request)
            )
        else:
            self._respond(responses, request, *respond(self._terminal, request))
        self.replenish_credit()

    async def _renew(self, responses: ManagementResponses, request: Amqp10Message) -> None:
        """A new token, before the old one expires."""
        body = request.body.value if isinstance(request.body, AmqpValue) else request.body
        try:
            if not isinstance(body, bytes):
                raise PreconditionFailed("the body should be a token, as binary data")
            await self._terminal.renew_credential(bytes(body))
            status, reason = 204, None
        except PenstockError as error:
            status, reason = _STATUS.get(type(error), 400), str(error)
        if responses.link.live:
            self._respond(responses, request, status, reason)
            self._terminal.host.kernel.write_batch.flush()

    def _respond(
        self, responses: ManagementResponses, request: Amqp10Message, status: int, body: Any
    ) -> None:
        asked = request.properties or Amqp10Properties()
        properties = Amqp10Properties(
            to=asked.reply_to, subject=str(status), correlation_id=asked.message_id
        )
        response = Amqp10Message(
            AmqpValue(body),
            properties=properties,
            application_properties={"http:response": "1.1"},
        )
        responses.add(encode_message(response))

    def _paired(self) -> ManagementResponses:
        for link in self.link.session.links:
            if link.name == self.link.name and isinstance(link.context, ManagementResponses):
                return link.context
        raise LinkFault(
            PRECONDITION_FAILED,
            f"no link {self.link.name!r} receives from {MANAGEMENT_ADDRESS} in this session",
        )

    def replenish_credit(self) -> None:
        link = self.link
        if link.credit <= REQUEST_CREDIT // 2 and link.live:
            link.grant(REQUEST_CREDIT)

    def abandon(self) -> None:
        self._parts.clear()


def _in_order(payload: bytes) -> bytes:
    """RabbitMQ's client for Python writes an empty body before the properties."""
    sections = []
    at, end = 0, len(payload)
    while at < end:
        stop = skip(payload, at, end)
        sections.append((section_at(payload, at, end)[0], payload[at:stop]))
        at = stop
    sections.sort(key=lambda section: section[0])
    return b"".join(content for _, content in sections)


def is_token_request(request: Amqp10Message) -> bool:
    properties = request.properties or Amqp10Properties()
    return (properties.subject, properties.to) == ("PUT", "/auth/tokens")


def respond(terminal: Amqp10Terminal, request: Amqp10Message) -> Response:
    properties = request.properties or Amqp10Properties()
    method, address = properties.subject or "", properties.to or ""
    path, _, query = address.partition("?")
    parts = path.strip("/").split("/")
    body = request.body.value if isinstance(request.body, AmqpValue) else None
    fields = _plain(body) if isinstance(body, dict) else {}
    try:
        match method, parts:
            case "PUT", ["queues", name]:
                return _declare_queue(terminal, unquote(name), fields)
            case "GET", ["queues", name]:
                return 200, _describe(terminal, terminal.vhost.queue(unquote(name), terminal))
            case "DELETE", ["queues", name]:
                return _delete_queue(terminal, unquote(name))
            case "DELETE", ["queues", name, "messages"]:
                return _purge_queue(terminal, unquote(name))
            case "PUT", ["exchanges", name]:
                return _declare_exchange(terminal, unquote(name), fields)
            case "DELETE", ["exchanges", name]:
                return _delete_exchange(terminal, unquote(name))
            case "POST", ["bindings"]:
                return _bind(terminal, fields)
            case "DELETE", ["bindings", binding]:
                return _unbind(terminal, binding)
            case "GET", ["bindings"]:
                return _list_bindings(terminal, dict(parse_qsl(query, keep_blank_values=True)))
        return 404, f"no resource for {method} {path}"
    except PenstockError as error:
        return _STATUS.get(type(error), 400), str(error)


def _plain(value: Any) -> Any:
    """Without the types of AMQP 1.0, which declarations do not know."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _field(fields: dict[str, Any], name: str, default: Any) -> Any:
    value = fields.get(name)
    value = default if value is None else value
    if type(value) is not type(default):
        raise PreconditionFailed(f"{name}: {type(default).__name__} expected, got {value!r}")
    return value


def _declare_queue(terminal: Amqp10Terminal, name: str, fields: dict[str, Any]) -> Response:
    vhost, arguments = terminal.vhost, _field(fields, "arguments", {})
    terminal.access.check("configure", "queue", name)
    terminal.access.check_dead_letters(vhost, name, arguments)
    known = name in vhost.queues
    queue = vhost.declare_queue(
        name,
        durable=_field(fields, "durable", True),
        owner=terminal,
        exclusive=_field(fields, "exclusive", False),
        auto_delete=_field(fields, "auto_delete", False),
        arguments=arguments,
    )
    return 200 if known else 201, _describe(terminal, queue)


def _describe(terminal: Amqp10Terminal, queue: Queue) -> dict[str, Any]:
    node = str(terminal.host.kernel.settings.server_name)
    return {
        "name": queue.name,
        "vhost": terminal.vhost.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "type": queue.arguments.get("x-queue-type", queue.type),
        "arguments": queue.arguments,
        "message_count": ULong(queue.message_count),
        "consumer_count": UInt(queue.consumer_count),
        "leader": node,
        "replicas": [node],
    }


def _delete_queue(terminal: Amqp10Terminal, name: str) -> Response:
    terminal.access.check("configure", "queue", name)
    terminal.vhost.queue(name, terminal)
    count = terminal.vhost.delete_queue(name, owner=terminal)
    return 200, {"message_count": ULong(count)}


def _purge_queue(terminal: Amqp10Terminal, name: str) -> Response:
    terminal.access.check("read", "queue", name)
    return 200, {"message_count": ULong(terminal.vhost.queue(name, terminal).purge())}


def _declare_exchange(terminal: Amqp10Terminal, name: str, fields: dict[str, Any]) -> Response:
    access, arguments = terminal.access, _field(fields, "arguments", {})
    access.check("configure", "exchange", name)
    if isinstance(alternate := arguments.get("alternate-exchange"), str):
        access.check("read", "exchange", name)
        access.check_forward(alternate)
    terminal.vhost.declare_exchange(
        name,
        _field(fields, "type", "direct"),
        durable=_field(fields, "durable", True),
        auto_delete=_field(fields, "auto_delete", False),
        internal=_field(fields, "internal", False),
        arguments=arguments,
    )
    return 204, None


def _delete_exchange(terminal: Amqp10Terminal, name: str) -> Response:
    terminal.access.check("configure", "exchange", name)
    terminal.vhost.exchange(name)
    terminal.vhost.delete_exchange(name)
    return 204, None


def _destination(terminal: Amqp10Terminal, fields: dict[str, Any], suffix: str) -> Queue | Exchange:
    """The destination, which the client may write to; `suffix` tells apart the field names."""
    queue, exchange = (_field(fields, f"{suffix}{kind}", "") for kind in ("queue", "exchange"))
    if queue:
        terminal.access.check("write", "queue", queue)
        return terminal.vhost.queue(queue, terminal)
    terminal.access.check_forward(exchange)
    return terminal.vhost.exchange(exchange)


def _bind(terminal: Amqp10Terminal, fields: dict[str, Any]) -> Response:
    source, key = _field(fields, "source", ""), _field(fields, "binding_key", "")
    arguments = _field(fields, "arguments", {})
    destination = _destination(terminal, fields, "destination_")
    terminal.access.check_bind(terminal.vhost.exchange(source), key, arguments)
    terminal.vhost.bind(source, destination, key, arguments)
    return 204, None


def _location(binding: Binding) -> str:
    """The path of a binding; a hash of its arguments tells it from others of the same key."""
    kind = "dstq" if binding.destination_kind == "queue" else "dste"
    hashed = properties_key("", binding.arguments).rpartition("~")[2] if binding.arguments else ""
    names = (binding.source, binding.destination.name, binding.key)
    source, destination, key = (quote(name, safe="") for name in names)
    return f"/bindings/src={source};{kind}={destination};key={key};args={hashed}"


def _parse(pairs: dict[str, str]) -> dict[str, Any]:
    return {
        "source": pairs.get("src", ""),
        "queue": pairs.get("dstq", ""),
        "exchange": pairs.get("dste", ""),
    }


def _unbind(terminal: Amqp10Terminal, text: str) -> Response:
    pairs = {
        name: unquote(value) for name, _, value in (part.partition("=") for part in text.split(";"))
    }
    fields = _parse(pairs)
    destination = _destination(terminal, fields, "")
    terminal.access.check("read", "exchange", fields["source"])
    for binding in terminal.vhost.bindings_of(destination):
        if _location(binding).rpartition("/")[2] == _canonical(pairs):
            terminal.vhost.unbind(binding.source, destination, binding.key, binding.arguments)
    return 204, None


def _canonical(pairs: dict[str, str]) -> str:
    kind = "dstq" if "dstq" in pairs else "dste"
    names: tuple[str, ...] = ("src", kind, "key")
    written = [f"{name}={quote(pairs.get(name, ''), safe='')}" for name in names]
    return ";".join([*written, f"args={pairs.get('args', '')}"])


def _list_bindings(terminal: Amqp10Terminal, query: dict[str, str]) -> Response:
    fields = _parse(query)
    terminal.access.check("read", "exchange", fields["source"])
    destination = _destination(terminal, fields, "")
    return 200, [
        {
            "source": binding.source,
            f"destination_{binding.destination_kind}": binding.destination.name,
            "binding_key": binding.key,
            "arguments": binding.arguments,
            "location": _location(binding),
        }
        for binding in terminal.vhost.bindings_of(destination)
        if binding.source == fields["source"] and query.get("key") in (None, binding.key)
    ]
