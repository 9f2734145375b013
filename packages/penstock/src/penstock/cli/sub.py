"""`penstock sub`: receives messages, one per line of standard output.

Everything else goes to standard error. Ctrl-C ends it without an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from penstock.cli.client_options import (
    DEFAULT_URL,
    PATTERNS,
    FormatHex,
    FormatJson,
    FormatText,
    Qos,
    Url,
    choose_flag,
    choose_format,
    log_warnings_plainly,
    reject_options,
    require_topic,
    require_topic_filter,
    split_broker_url,
    text_or_base64,
)
from penstock.client import Fabric, MessageReceiver, ReceivedMessage, connect
from penstock.client.fabric import StreamStart
from penstock.client.message import JSON
from penstock.client.url import BrokerProtocol, protocol_of

Show = Callable[[ReceivedMessage], None]
Form = Literal["auto", "json", "text", "hex"]


Patterns = Annotated[
    list[str],
    typer.Argument(
        help="Subject patterns ('demo.#') or topic filters ('sensors/+/report'); "
        "or one queue, service or stream; over PADRES subscriptions. The broker's URL may be first."
    ),
]
Pull = Annotated[bool, typer.Option("--pull", help="Consume a queue.", rich_help_panel=PATTERNS)]
Reply = Annotated[bool, typer.Option("--reply", help="Answer requests.", rich_help_panel=PATTERNS)]
Stream = Annotated[
    bool, typer.Option("--stream", help="Replay a stream.", rich_help_panel=PATTERNS)
]
Begin = Annotated[
    str | None,
    typer.Option(
        metavar="POINT",
        show_default=False,
        help="Start of a replay: first, last, next, an offset, a time, or 1h. [default: first]",
    ),
]
Name = Annotated[str | None, typer.Option(help="Name of a durable subscription.")]
Answer = Annotated[str | None, typer.Option(help="Answer to requests. [default: the request]")]
Count = Annotated[
    int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Stop after N messages.")
]
Format = Annotated[
    Form | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        show_default=False,
        help="auto: a readable line; json: all properties; text, hex: the body. [default: auto]",
    ),
]


def sub(
    patterns: Patterns,
    url: Url = DEFAULT_URL,
    pull: Pull = False,
    reply: Reply = False,
    stream: Stream = False,
    start: Begin = None,
    name: Name = None,
    answer: Answer = None,
    count: Count = None,
    form: Format = None,
    as_json: FormatJson = False,
    as_hex: FormatHex = False,
    as_text: FormatText = False,
    qos: Qos = None,
) -> None:
    """Receive messages: subscribe, consume a queue, replay a stream, or answer requests.

    `penstock sub 'demo.#'`

    `penstock sub mqtt://localhost 'sensors/+/report' --count 10 --json`

    `penstock sub padres://localhost '[class,eq,stock],[price,<,50]'`
    """
    url, names = split_broker_url(patterns, url, "the pattern to subscribe to")
    protocol = protocol_of(url)
    reject_options(
        protocol,
        pull=pull,
        reply=reply,
        stream=stream,
        start=start is not None,
        qos=qos is not None,
    )
    pattern = choose_flag("subscribe", pull=pull, reply=reply, stream=stream)
    shown_as = choose_format(form, "auto", json=as_json, hex=as_hex, text=as_text)
    show = PRINTERS[shown_as]
    if pattern != "subscribe" and len(names) > 1:
        raise typer.BadParameter(f"--{pattern} takes one name, not {len(names)}")
    if protocol is BrokerProtocol.MQTT:
        for each in names:
            require_topic_filter(each) if pattern == "subscribe" else require_topic(each)
    begin = parse_start(start or "first")
    log_warnings_plainly()

    async def watch() -> None:
        if protocol is BrokerProtocol.PADRES:
            from penstock.cli.padres import watch_publications

            await watch_publications(url, names, name, count, shown_as)
            return
        async with connect(url) as fabric:
            if protocol is BrokerProtocol.MQTT and pattern == "subscribe":
                receiver: MessageReceiver = fabric.mqtt.subscribe(
                    *names, name=name, qos=1 if qos is None else qos
                )
            else:
                receiver = _receiver(fabric, pattern, names, begin, name)
            await _watch(receiver, pattern == "reply", answer, count, show)

    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(watch())
    except BrokenPipeError:
        # The reader of our output has ended; without this Python reports it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse_start(text: str) -> StreamStart:
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    if text in ("first", "last", "next") or (text[:-1].isdecimal() and text[-1] in "YMDhms"):
        return text
    raise typer.BadParameter(
        f"--start {text!r} should be first, last, next, an offset such as 42, "
        "a time such as 2026-01-31T12:00, or how long ago, such as 30m or 1h"
    )


def _receiver(
    fabric: Fabric, pattern: str, addresses: Sequence[str], start: StreamStart, name: str | None
) -> MessageReceiver:
    if pattern == "subscribe":
        return fabric.subscribe(*addresses, name=name)
    if pattern == "stream":
        return fabric.replay(addresses[0], start)
    return fabric.pull(addresses[0]) if pattern == "pull" else fabric.reply(addresses[0])


async def _watch(
    receiver: MessageReceiver, replies: bool, answer: str | None, count: int | None, show: Show
) -> None:
    seen = 0
    async with receiver:
        if sys.stderr.isatty():
            typer.secho("listening; Ctrl-C ends", dim=True, err=True)
        async with aclosing(aiter(receiver)) as messages:
            async for message in messages:
                show(message)
                if replies and message.reply_to:
                    await message.reply(message.body if answer is None else answer)
                seen += 1
                if seen == count:
                    break


def _readable(message: ReceivedMessage) -> str:
    return message.body.decode(errors="backslashreplace")


def _readable_or_hex(message: ReceivedMessage) -> str:
    try:
        return message.text
    except UnicodeDecodeError:
        return message.body.hex()


def _show_line(message: ReceivedMessage) -> None:
    from rich.console import Console
    from rich.text import Text

    line = Text(message.address, style="cyan")
    if message.offset is not None:
        line.append(f" {message.offset}", style="dim")
    if message.qos is not None:
        line.append(f" {' '.join(_mqtt_properties(message))}", style="dim")
        line.append(f" {_readable_or_hex(message)}")
    else:
        line.append(f" {_readable(message)}")
    Console().print(line, soft_wrap=True)


def _mqtt_properties(message: ReceivedMessage) -> Iterator[str]:
    yield f"q{message.qos}"
    if message.retained:
        yield "retained"
    if message.redelivered:
        yield "redelivered"
    for name, value in message.headers.items():
        for each in value if isinstance(value, list) else [value]:
            yield f"{name}={each}"


def message_record(message: ReceivedMessage) -> dict[str, Any]:
    """A message as a JSON object."""
    body: dict[str, Any]
    try:
        body = {"body": message.json()} if _is_json(message) else {}
    except ValueError:
        body = {}
    fields = {
        "address": message.address,
        "offset": message.offset,
        "content_type": message.content_type,
        "headers": dict(message.headers) or None,
        "message_id": message.message_id,
        "timestamp": message.timestamp and message.timestamp.isoformat(),
        "redelivered": message.redelivered or None,
        "qos": message.qos,
        "retained": message.retained or None,
        "reply_to": message.reply_to if message.qos is not None else None,
        "correlation_id": message.correlation_id if message.qos is not None else None,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return present | (body or text_or_base64("body", message.body))


def _is_json(message: ReceivedMessage) -> bool:
    if message.content_type is not None or message.qos is None:
        return message.content_type == JSON
    # Few MQTT clients set the content type.
    try:
        return isinstance(message.json(), dict | list)
    except ValueError:
        return False


PRINTERS: dict[str, Show] = {
    "auto": _show_line,
    "text": lambda message: typer.echo(_readable(message)),
    "hex": lambda message: typer.echo(message.body.hex()),
    "json": lambda message: typer.echo(
        json.dumps(message_record(message), ensure_ascii=False, default=str)
    ),
}
