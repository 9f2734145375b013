"""`penstock sub`: watch messages from the command line.

One message a line on standard output; what is said about them goes to standard error, so that a
pipe sees messages only. Ctrl-C is the usual way to end it, and no error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from penstock.cli.client_options import (
    DEFAULT_URL,
    MQTT,
    ONLY_MQTT,
    PADRES,
    PATTERNS,
    Url,
    choose_flag,
    choose_format,
    log_warnings_plainly,
    protocol_of,
    reject_options,
    require_topic,
    require_topic_filter,
    split_broker_url,
)
from penstock.client import Fabric, MessageReceiver, ReceivedMessage, connect
from penstock.client.fabric import StreamStart
from penstock.client.message import JSON

Show = Callable[[ReceivedMessage], None]
Form = Literal["auto", "json", "text", "hex"]


Patterns = Annotated[
    list[str],
    typer.Argument(
        help="Subject patterns ('demo.#') or topic filters ('sensors/+/report'); "
        "or one queue, service or stream; over PADRES subscriptions. A broker's URL may come "
        "before them."
    ),
]
Pull = Annotated[
    bool, typer.Option("--pull", help="Take items of a queue.", rich_help_panel=PATTERNS)
]
Reply = Annotated[bool, typer.Option("--reply", help="Serve requests.", rich_help_panel=PATTERNS)]
Stream = Annotated[
    bool, typer.Option("--stream", help="Replay a stream.", rich_help_panel=PATTERNS)
]
Begin = Annotated[
    str | None,
    typer.Option(
        metavar="POINT",
        show_default=False,
        help="Where to begin a stream: first, last, next, an offset, a time, or 1h. "
        "[default: first]",
    ),
]
Name = Annotated[
    str | None, typer.Option(help="A subscription that keeps messages while you are away.")
]
Answer = Annotated[str | None, typer.Option(help="What to answer requests; else they are echoed.")]
Count = Annotated[
    int | None, typer.Option("--count", "-n", min=1, metavar="N", help="End after this many.")
]
Format = Annotated[
    Form | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        show_default=False,
        help="auto: a line a message, for people; json: all about a message; "
        "text, hex: bodies only. [default: auto]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
AsHex = Annotated[bool, typer.Option("--hex", help="The same as --format hex.")]
AsText = Annotated[bool, typer.Option("--text", help="The same as --format text.")]
Qos = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2,
        metavar="0|1|2",
        show_default=False,
        help="Quality of service, at most. [default: 1]",
        rich_help_panel=ONLY_MQTT,
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
    as_json: AsJson = False,
    as_hex: AsHex = False,
    as_text: AsText = False,
    qos: Qos = None,
) -> None:
    """Watch messages: subscribe to subjects or topics, pull, replay a stream, or serve requests.

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
        raise typer.BadParameter(f"--{pattern} takes one name")
    if protocol == MQTT:
        for each in names:
            require_topic_filter(each) if pattern == "subscribe" else require_topic(each)
    begin = parse_start(start or "first")
    log_warnings_plainly()

    async def watch() -> None:
        if protocol == PADRES:
            from penstock.cli.padres import watch_publications

            await watch_publications(url, names, name, count, shown_as)
            return
        async with connect(url) as fabric:
            if protocol == MQTT and pattern == "subscribe":
                inflow: MessageReceiver = fabric.mqtt.subscribe(
                    *names, name=name, qos=1 if qos is None else qos
                )
            else:
                inflow = _inflow(fabric, pattern, names, begin, name)
            await _watch(inflow, pattern == "reply", answer, count, show)

    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(watch())
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain again at exit.
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


def _inflow(
    fabric: Fabric, pattern: str, addresses: Sequence[str], start: StreamStart, name: str | None
) -> MessageReceiver:
    if pattern == "subscribe":
        return fabric.subscribe(*addresses, name=name)
    if pattern == "stream":
        return fabric.replay(addresses[0], start)
    return fabric.pull(addresses[0]) if pattern == "pull" else fabric.reply(addresses[0])


async def _watch(
    inflow: MessageReceiver, replies: bool, answer: str | None, count: int | None, show: Show
) -> None:
    seen = 0
    async with inflow:
        if sys.stderr.isatty():
            typer.secho("listening; Ctrl-C ends", dim=True, err=True)
        async with aclosing(aiter(inflow)) as messages:
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
    """What MQTT says about a message beside its topic."""
    yield f"q{message.qos}"
    if message.retained:
        yield "retained"
    if message.redelivered:
        yield "again"
    for name, value in message.headers.items():
        for each in value if isinstance(value, list) else [value]:
            yield f"{name}={each}"


def _show_text(message: ReceivedMessage) -> None:
    typer.echo(_readable(message))


def _show_hex(message: ReceivedMessage) -> None:
    typer.echo(message.body.hex())


def _show_json(message: ReceivedMessage) -> None:
    typer.echo(json.dumps(message_record(message), ensure_ascii=False, default=str))


def message_record(message: ReceivedMessage) -> dict[str, Any]:
    """A message as one JSON object; a body that is no text goes as base64."""
    body: dict[str, Any]
    try:
        body = {"body": message.json() if _is_json(message) else message.text}
    except ValueError:
        body = {"body_base64": b64encode(message.body).decode()}
    facts = {
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
    return {name: fact for name, fact in facts.items() if fact is not None} | body


def _is_json(message: ReceivedMessage) -> bool:
    if message.content_type is not None or message.qos is None:
        return message.content_type == JSON
    # Few who speak MQTT name the type of what they send.
    try:
        return isinstance(message.json(), dict | list)
    except ValueError:
        return False


PRINTERS: dict[str, Show] = {
    "auto": _show_line,
    "text": _show_text,
    "hex": _show_hex,
    "json": _show_json,
}
