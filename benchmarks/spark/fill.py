"""Streams with something in them: reports of sensors, 59 bytes each, published with confirms."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from pamqp import commands

from penstock.client.amqp091.blocking import BlockingConnection
from penstock.client.amqp091.publisher import Publisher
from penstock.core.properties import PERSISTENT, Properties, encode_header, shortstr
from penstock.wire.amqp091.address import parse_address

BODY_BYTES: Final = 59
SENSORS: Final = 1000
EXCHANGE: Final = "reports"


def fill(url: str, streams: Sequence[str], count: int) -> None:
    """Declare the streams anew and put `count` reports into each."""
    address = parse_address(url)
    with closing(BlockingConnection(address)) as connection:
        channel = connection.open_channel()
        declare = commands.Exchange.Declare(0, EXCHANGE, "topic")
        connection.call(channel, declare, commands.Exchange.DeclareOk)
        for stream in streams:
            connection.call(channel, commands.Queue.Delete(0, stream), commands.Queue.DeleteOk)
            new = commands.Queue.Declare(
                0, stream, durable=True, arguments={"x-queue-type": "stream"}
            )
            connection.call(channel, new, commands.Queue.DeclareOk)
            bind = commands.Queue.Bind(0, stream, EXCHANGE, f"{stream}.#")
            connection.call(channel, bind, commands.Queue.BindOk)
    # As most publishers of small reports do it: persistent, and nothing more.
    header = encode_header(Properties(delivery_mode=PERSISTENT), BODY_BYTES)
    with Publisher(address, mandatory=True, patience=60.0) as publisher:
        for stream in streams:
            keys = [
                shortstr(EXCHANGE, "") + shortstr(f"{stream}.{sensor:04d}.report", "")
                for sensor in range(SENSORS)
            ]
            for number in range(count):
                body = (b"%d" % number).ljust(BODY_BYTES, b".")
                publisher.publish(keys[number % SENSORS], header, body)
        publisher.flush()
