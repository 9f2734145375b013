"""The methods of AMQP 0-9-1, with RabbitMQ's, as data; and the one codec they share.

From the table in `declarations.py` come `decode_method`, which turns the payload of a method frame
into its `Method` and `Arguments`, and the way back: `encode_method` and `method_frame`. What comes
by the million (publish, deliver, ack) deserves a faster codec of its own; this one is for all the
rest, and the measure of the other.

As in RabbitMQ, a payload must hold its fields and nothing more, and names must be UTF-8.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from penstock.core.errors import CommandInvalid, WireSyntaxError
from penstock.terminals.amqp091.declarations import METHODS as METHODS
from penstock.terminals.amqp091.declarations import Method as Method
from penstock.terminals.amqp091.fields import BIT

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


class Arguments(SimpleNamespace):
    """The fields of one method as attributes: `args.queue`, `args.no_wait`.

    Names are the standard's with underscores (`global_` because Python keeps `global`; `ticket` is
    the reserved number that opens many methods). Short strings are `str`, long strings `bytes`,
    tables `dict`, bits `bool`.
    """


def decode_method(payload: bytes) -> tuple[Method, Arguments]:
    """Read the payload of a method frame."""
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
    return method, Arguments(**arguments)


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


def method_frame(channel: int, number: int, /, **values: Any) -> bytes:
    """A whole method frame."""
    payload = encode_method(number, **values)
    return b"\x01%b%b%b\xce" % (
        channel.to_bytes(2, "big"),
        len(payload).to_bytes(4, "big"),
        payload,
    )
