"""The methods of AMQP 0-9-1 and RabbitMQ's extensions: one table, and the codec that reads it.

`decode_method` turns the payload of a method frame into a `ReceivedMethod`; `encode_method` and
`encode_method_frame` do the reverse. Both sides of a connection use it for every method except the
frequent ones (publish, deliver, ack), for which `frames.py` and `content.py` have fast paths.

As in RabbitMQ, a payload must contain its fields and nothing more, and names must be UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from penstock.core.basic_properties import decode_shortstr, encode_shortstr
from penstock.core.errors import CommandInvalid, WireSyntaxError
from penstock.core.field_table import decode_table, encode_table

# Method numbers: the class in the high half, the method in the low one.

CONNECTION_START: Final = 10 << 16 | 10
CONNECTION_START_OK: Final = 10 << 16 | 11
CONNECTION_SECURE: Final = 10 << 16 | 20
CONNECTION_SECURE_OK: Final = 10 << 16 | 21
CONNECTION_TUNE: Final = 10 << 16 | 30
CONNECTION_TUNE_OK: Final = 10 << 16 | 31
CONNECTION_OPEN: Final = 10 << 16 | 40
CONNECTION_OPEN_OK: Final = 10 << 16 | 41
CONNECTION_CLOSE: Final = 10 << 16 | 50
CONNECTION_CLOSE_OK: Final = 10 << 16 | 51
CONNECTION_BLOCKED: Final = 10 << 16 | 60
CONNECTION_UNBLOCKED: Final = 10 << 16 | 61
CONNECTION_UPDATE_SECRET: Final = 10 << 16 | 70
CONNECTION_UPDATE_SECRET_OK: Final = 10 << 16 | 71

CHANNEL_OPEN: Final = 20 << 16 | 10
CHANNEL_OPEN_OK: Final = 20 << 16 | 11
CHANNEL_FLOW: Final = 20 << 16 | 20
CHANNEL_FLOW_OK: Final = 20 << 16 | 21
CHANNEL_CLOSE: Final = 20 << 16 | 40
CHANNEL_CLOSE_OK: Final = 20 << 16 | 41

ACCESS_REQUEST: Final = 30 << 16 | 10
ACCESS_REQUEST_OK: Final = 30 << 16 | 11

EXCHANGE_DECLARE: Final = 40 << 16 | 10
EXCHANGE_DECLARE_OK: Final = 40 << 16 | 11
EXCHANGE_DELETE: Final = 40 << 16 | 20
EXCHANGE_DELETE_OK: Final = 40 << 16 | 21
EXCHANGE_BIND: Final = 40 << 16 | 30
EXCHANGE_BIND_OK: Final = 40 << 16 | 31
EXCHANGE_UNBIND: Final = 40 << 16 | 40
EXCHANGE_UNBIND_OK: Final = 40 << 16 | 51

QUEUE_DECLARE: Final = 50 << 16 | 10
QUEUE_DECLARE_OK: Final = 50 << 16 | 11
QUEUE_BIND: Final = 50 << 16 | 20
QUEUE_BIND_OK: Final = 50 << 16 | 21
QUEUE_PURGE: Final = 50 << 16 | 30
QUEUE_PURGE_OK: Final = 50 << 16 | 31
QUEUE_DELETE: Final = 50 << 16 | 40
QUEUE_DELETE_OK: Final = 50 << 16 | 41
QUEUE_UNBIND: Final = 50 << 16 | 50
QUEUE_UNBIND_OK: Final = 50 << 16 | 51

BASIC_QOS: Final = 60 << 16 | 10
BASIC_QOS_OK: Final = 60 << 16 | 11
BASIC_CONSUME: Final = 60 << 16 | 20
BASIC_CONSUME_OK: Final = 60 << 16 | 21
BASIC_CANCEL: Final = 60 << 16 | 30
BASIC_CANCEL_OK: Final = 60 << 16 | 31
BASIC_PUBLISH: Final = 60 << 16 | 40
BASIC_RETURN: Final = 60 << 16 | 50
BASIC_DELIVER: Final = 60 << 16 | 60
BASIC_GET: Final = 60 << 16 | 70
BASIC_GET_OK: Final = 60 << 16 | 71
BASIC_GET_EMPTY: Final = 60 << 16 | 72
BASIC_ACK: Final = 60 << 16 | 80
BASIC_REJECT: Final = 60 << 16 | 90
BASIC_RECOVER_ASYNC: Final = 60 << 16 | 100
BASIC_RECOVER: Final = 60 << 16 | 110
BASIC_RECOVER_OK: Final = 60 << 16 | 111
BASIC_NACK: Final = 60 << 16 | 120

CONFIRM_SELECT: Final = 85 << 16 | 10
CONFIRM_SELECT_OK: Final = 85 << 16 | 11

TX_SELECT: Final = 90 << 16 | 10
TX_SELECT_OK: Final = 90 << 16 | 11
TX_COMMIT: Final = 90 << 16 | 20
TX_COMMIT_OK: Final = 90 << 16 | 21
TX_ROLLBACK: Final = 90 << 16 | 30
TX_ROLLBACK_OK: Final = 90 << 16 | 31


class MethodArguments(SimpleNamespace):
    """The fields of one method as attributes: `args.queue`, `args.no_wait`.

    Names are the standard's with underscores (`global_` because `global` is a Python keyword;
    `ticket` is the reserved first field of many methods). Short strings are `str`, long strings
    `bytes`, tables `dict`, bits `bool`.
    """


class ReceivedMethod(NamedTuple):
    method: AmqpMethod
    arguments: MethodArguments

    @property
    def id(self) -> int:
        return self.method.id


def decode_method(payload: bytes) -> ReceivedMethod:
    if len(payload) < 4:
        raise WireSyntaxError(f"method frame of {len(payload)} bytes, at least 4 are needed")
    number = int.from_bytes(payload[:4], "big")
    method = METHODS.get(number)
    if method is None:
        raise CommandInvalid(f"unknown method {number & 0xFFFF} of class {number >> 16}")
    arguments: dict[str, Any] = {}
    pos = 4
    octet = bit = 0
    try:
        for name, kind in method.fields:
            if kind is not BIT:
                bit = 0
                arguments[name], pos = kind.read(payload, pos)
                continue
            if not bit:
                octet, pos = kind.read(payload, pos)
                bit = 1
            arguments[name] = octet & bit != 0
            bit = bit << 1 & 0xFF
    except WireSyntaxError as error:
        raise WireSyntaxError(f"cannot read {method.name}: {error}") from None
    if pos != len(payload):
        raise WireSyntaxError(f"{len(payload) - pos} bytes follow the fields of {method.name}")
    return ReceivedMethod(method, MethodArguments(**arguments))


def encode_method(number: int, /, **values: Any) -> bytes:
    """The payload of a method frame; fields not given are empty, zero or false."""
    method = METHODS[number]
    parts = [number.to_bytes(4, "big")]
    bit = 0
    for name, kind in method.fields:
        value = values.pop(name, kind.default)
        if kind is not BIT:
            bit = 0
            parts.append(kind.write(value))
            continue
        if not bit:
            parts.append(b"\x00")
            bit = 1
        if value:
            parts[-1] = bytes((parts[-1][0] | bit,))
        bit = bit << 1 & 0xFF
    if values:
        raise TypeError(f"{method.name} has no field {next(iter(values))!r}")
    return b"".join(parts)


def encode_method_frame(channel: int, number: int, /, **values: Any) -> bytes:
    payload = encode_method(number, **values)
    return b"\x01%b%b%b\xce" % (
        channel.to_bytes(2, "big"),
        len(payload).to_bytes(4, "big"),
        payload,
    )


@dataclass(frozen=True, slots=True)
class FieldType:
    """How a field type is read at a position and written, and the value of an omitted field.

    Both functions raise `WireSyntaxError` for a value that does not fit.
    """

    name: str
    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]
    default: Any


def _integer(name: str, size: int) -> FieldType:
    def read(data: bytes, pos: int) -> tuple[int, int]:
        after = pos + size
        if after > len(data):
            raise WireSyntaxError(f"{name} at byte {pos} runs past the end of the method")
        return int.from_bytes(data[pos:after], "big"), after

    def write(value: int) -> bytes:
        try:
            return value.to_bytes(size, "big")
        except OverflowError:
            raise WireSyntaxError(f"{value} does not fit in a {name}") from None

    return FieldType(name, read, write, 0)


def _read_text(data: bytes, pos: int) -> tuple[str, int]:
    """Read a short string that is a name, and therefore must be UTF-8."""
    value, after = decode_shortstr(data, pos)
    # Invalid UTF-8 was decoded to lone surrogates, which UTF-8 cannot encode.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise WireSyntaxError(f"short string at byte {pos} is not UTF-8") from None
    return value, after


def _read_longstr(data: bytes, pos: int) -> tuple[bytes, int]:
    start = pos + 4
    stop = start + int.from_bytes(data[pos:start], "big")
    if stop > len(data):
        raise WireSyntaxError(f"long string at byte {pos} runs past the end of the method")
    return data[start:stop], stop


def _write_longstr(value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return len(content).to_bytes(4, "big") + content


OCTET: Final = _integer("octet", 1)
SHORT: Final = _integer("short", 2)
LONG: Final = _integer("long", 4)
LONGLONG: Final = _integer("longlong", 8)
TIMESTAMP: Final = _integer("timestamp", 8)
SHORTSTR: Final = FieldType("shortstr", _read_text, encode_shortstr, "")
#: A short string that is passed on with content unchanged, UTF-8 or not.
OPAQUE: Final = FieldType("opaque", decode_shortstr, encode_shortstr, "")
LONGSTR: Final = FieldType("longstr", _read_longstr, _write_longstr, b"")
TABLE: Final = FieldType("table", decode_table, encode_table, {})
#: Adjacent bits share an octet: this reads and writes the octet, the method codec its bits.
BIT: Final = FieldType("bit", OCTET.read, OCTET.write, False)

FIELD_TYPES: Final = {
    kind.name: kind
    for kind in (
        *(BIT, OCTET, SHORT, LONG, LONGLONG, TIMESTAMP),
        *(SHORTSTR, OPAQUE, LONGSTR, TABLE),
    )
}


#: A line is the class, the method, its name and its fields in order, each with its type; a field
#: without a type is a bit.
_METHOD_TABLE: Final = """
10 10  connection.start         version_major:octet version_minor:octet server_properties:table
                                mechanisms:longstr locales:longstr
10 11  connection.start-ok      client_properties:table mechanism:shortstr response:longstr
                                locale:shortstr
10 20  connection.secure        challenge:longstr
10 21  connection.secure-ok     response:longstr
10 30  connection.tune          channel_max:short frame_max:long heartbeat:short
10 31  connection.tune-ok       channel_max:short frame_max:long heartbeat:short
10 40  connection.open          virtual_host:shortstr capabilities:shortstr insist
10 41  connection.open-ok       known_hosts:shortstr
10 50  connection.close         reply_code:short reply_text:shortstr class_id:short method_id:short
10 51  connection.close-ok
10 60  connection.blocked       reason:shortstr
10 61  connection.unblocked
10 70  connection.update-secret new_secret:longstr reason:shortstr
10 71  connection.update-secret-ok

20 10  channel.open             out_of_band:shortstr
20 11  channel.open-ok          channel_id:longstr
20 20  channel.flow             active
20 21  channel.flow-ok          active
20 40  channel.close            reply_code:short reply_text:shortstr class_id:short method_id:short
20 41  channel.close-ok

30 10  access.request           realm:shortstr exclusive passive active write read
30 11  access.request-ok        ticket:short

40 10  exchange.declare         ticket:short exchange:shortstr type:shortstr passive durable
                                auto_delete internal no_wait arguments:table
40 11  exchange.declare-ok
40 20  exchange.delete          ticket:short exchange:shortstr if_unused no_wait
40 21  exchange.delete-ok
40 30  exchange.bind            ticket:short destination:shortstr source:shortstr
                                routing_key:shortstr no_wait arguments:table
40 31  exchange.bind-ok
40 40  exchange.unbind          ticket:short destination:shortstr source:shortstr
                                routing_key:shortstr no_wait arguments:table
40 51  exchange.unbind-ok

50 10  queue.declare            ticket:short queue:shortstr passive durable exclusive auto_delete
                                no_wait arguments:table
50 11  queue.declare-ok         queue:shortstr message_count:long consumer_count:long
50 20  queue.bind               ticket:short queue:shortstr exchange:shortstr routing_key:shortstr
                                no_wait arguments:table
50 21  queue.bind-ok
50 30  queue.purge              ticket:short queue:shortstr no_wait
50 31  queue.purge-ok           message_count:long
50 40  queue.delete             ticket:short queue:shortstr if_unused if_empty no_wait
50 41  queue.delete-ok          message_count:long
50 50  queue.unbind             ticket:short queue:shortstr exchange:shortstr routing_key:shortstr
                                arguments:table
50 51  queue.unbind-ok

60 10  basic.qos                prefetch_size:long prefetch_count:short global_
60 11  basic.qos-ok
60 20  basic.consume            ticket:short queue:shortstr consumer_tag:shortstr no_local no_ack
                                exclusive no_wait arguments:table
60 21  basic.consume-ok         consumer_tag:shortstr
60 30  basic.cancel             consumer_tag:shortstr no_wait
60 31  basic.cancel-ok          consumer_tag:shortstr
60 40  basic.publish            ticket:short exchange:opaque routing_key:opaque mandatory immediate
60 50  basic.return             reply_code:short reply_text:opaque exchange:opaque
                                routing_key:opaque
60 60  basic.deliver            consumer_tag:opaque delivery_tag:longlong redelivered
                                exchange:opaque routing_key:opaque
60 70  basic.get                ticket:short queue:shortstr no_ack
60 71  basic.get-ok             delivery_tag:longlong redelivered exchange:opaque
                                routing_key:opaque message_count:long
60 72  basic.get-empty          cluster_id:shortstr
60 80  basic.ack                delivery_tag:longlong multiple
60 90  basic.reject             delivery_tag:longlong requeue
60 100 basic.recover-async      requeue
60 110 basic.recover            requeue
60 111 basic.recover-ok
60 120 basic.nack               delivery_tag:longlong multiple requeue

85 10  confirm.select           no_wait
85 11  confirm.select-ok

90 10  tx.select
90 11  tx.select-ok
90 20  tx.commit
90 21  tx.commit-ok
90 30  tx.rollback
90 31  tx.rollback-ok
"""


@dataclass(frozen=True, slots=True)
class AmqpMethod:
    id: int  #: the class in the high half, the method in the low one
    name: str  #: as the standard writes it: `queue.declare-ok`
    fields: tuple[tuple[str, FieldType], ...]
    handler: str  #: the name as a Python identifier: `queue_declare_ok`
    content: bool  #: whether a content header and a body follow


_CONTENT_METHODS: Final = frozenset(
    {"basic.publish", "basic.return", "basic.deliver", "basic.get-ok"}
)


def _parse_methods(declarations: str) -> dict[int, AmqpMethod]:
    methods: dict[int, AmqpMethod] = {}
    # A continuation line is indented.
    for words in (line.split() for line in declarations.replace("\n   ", " ").splitlines()):
        if not words:
            continue
        number = int(words[0]) << 16 | int(words[1])
        name = words[2]
        fields = tuple(_parse_field(*word.split(":")) for word in words[3:])
        handler = name.replace(".", "_").replace("-", "_")
        methods[number] = AmqpMethod(number, name, fields, handler, name in _CONTENT_METHODS)
    return methods


def _parse_field(name: str, kind: str = BIT.name) -> tuple[str, FieldType]:
    return name, FIELD_TYPES[kind]


METHODS: Final = _parse_methods(_METHOD_TABLE)
_IDS_BY_NAME: Final = {method.name: method.id for method in METHODS.values()}


def reply_id(request: int) -> int:
    """The method that answers a request: `queue.declare-ok` for `queue.declare`."""
    return _IDS_BY_NAME[f"{METHODS[request].name}-ok"]
