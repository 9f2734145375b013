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
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.cli.fabric import DEFAULT_URL, Url, chosen, speak_plainly
from penstock.client import Fabric, Inflow, Message, connect
from penstock.client.body import JSON
from penstock.client.fabric import Start

Show = Callable[[Message], None]


def sub(
    addresses: Annotated[
        list[str],
        typer.Argument(help="Subject patterns ('demo.#'); or one queue, service or stream."),
    ],
    url: Url = DEFAULT_URL,
    pull: Annotated[bool, typer.Option("--pull", help="Take items of a queue.")] = False,
    reply: Annotated[bool, typer.Option("--reply", help="Serve requests.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Replay a stream.")] = False,
    start: Annotated[
        str,
        typer.Option(help="Where to begin a stream: first, last, next, an offset, a time, or 1h."),
    ] = "first",
    name: Annotated[
        str | None, typer.Option(help="A subscription that keeps messages while you are away.")
    ] = None,
    answer: Annotated[
        str | None, typer.Option(help="What to answer requests; else they are echoed.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after this many.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All about a message, as JSON.")] = False,
    as_hex: Annotated[bool, typer.Option("--hex", help="Bodies only, in hex.")] = False,
    as_text: Annotated[bool, typer.Option("--text", help="Bodies only.")] = False,
) -> None:
    """Watch messages: subscribe to subjects, pull, replay a stream, or serve requests."""
    pattern = chosen("subscribe", pull=pull, reply=reply, stream=stream)
    show = SHOWS[chosen("line", json=as_json, hex=as_hex, text=as_text)]
    if pattern != "subscribe" and len(addresses) > 1:
        raise typer.BadParameter(f"--{pattern} takes one name")
    begin = parse_start(start)
    speak_plainly()

    async def watch() -> None:
        async with connect(url) as fabric:
            inflow = _inflow(fabric, pattern, addresses, begin, name)
            await _watch(inflow, pattern == "reply", answer, count, show)

    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(watch())
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse_start(text: str) -> Start:
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
    fabric: Fabric, pattern: str, addresses: Sequence[str], start: Start, name: str | None
) -> Inflow:
    if pattern == "subscribe":
        return fabric.subscribe(*addresses, name=name)
    if pattern == "stream":
        return fabric.replay(addresses[0], start)
    return fabric.pull(addresses[0]) if pattern == "pull" else fabric.reply(addresses[0])


async def _watch(
    inflow: Inflow, replies: bool, answer: str | None, count: int | None, show: Show
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


def _readable(message: Message) -> str:
    return message.body.decode(errors="backslashreplace")


def _show_line(message: Message) -> None:
    from rich.console import Console
    from rich.text import Text

    line = Text(message.address, style="cyan")
    if message.offset is not None:
        line.append(f" {message.offset}", style="dim")
    line.append(f" {_readable(message)}", style="")
    Console().print(line, soft_wrap=True)


def _show_text(message: Message) -> None:
    typer.echo(_readable(message))


def _show_hex(message: Message) -> None:
    typer.echo(message.body.hex())


def _show_json(message: Message) -> None:
    typer.echo(json.dumps(record(message), ensure_ascii=False, default=str))


def record(message: Message) -> dict[str, Any]:
    """A message as one JSON object; a body that is no text goes as base64."""
    body: dict[str, Any]
    try:
        readable = message.json() if message.content_type == JSON else message.text
        body = {"body": readable}
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
    }
    return {name: fact for name, fact in facts.items() if fact is not None} | body


SHOWS: dict[str, Show] = {
    "line": _show_line,
    "text": _show_text,
    "hex": _show_hex,
    "json": _show_json,
}
