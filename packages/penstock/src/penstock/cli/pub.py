"""`penstock pub`: sends messages.

Each body, or each line of standard input, is a message. The command succeeds when the broker has
confirmed all of them. Ctrl-C stops sending and still waits for the confirmations.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import typer

from penstock.cli.client_options import (
    DEFAULT_URL,
    ONLY_MQTT,
    PATTERNS,
    FormatHex,
    FormatJson,
    Qos,
    Url,
    choose_flag,
    choose_format,
    log_warnings_plainly,
    parse_headers,
    reject_options,
    require_topic,
    split_broker_url,
)
from penstock.client import Fabric, MessageSender, connect
from penstock.client.url import BrokerProtocol, protocol_of

#: With so many messages a terminal shows the progress.
PROGRESS_MESSAGES: Final = 1000
MAX_LINE_BYTES: Final = 1 << 26
FLUSH_SECONDS: Final = 5.0

Form = Literal["json", "text", "hex", "auto"]

Address = Annotated[
    str,
    typer.Argument(
        help="A subject (demo.hello) or topic (sensors/7/report); or a queue, service or "
        "stream; over PADRES a publication. The broker's URL may be first."
    ),
]
Bodies = Annotated[
    list[str] | None,
    typer.Argument(help="Messages; without them, or with -, lines of standard input."),
]
Push = Annotated[
    bool,
    typer.Option("--push", help="Send to a queue.", rich_help_panel=PATTERNS),
]
Request = Annotated[
    bool,
    typer.Option("--request", help="Call a service; print its replies.", rich_help_panel=PATTERNS),
]
Stream = Annotated[
    bool, typer.Option("--stream", help="Append to a stream.", rich_help_panel=PATTERNS)
]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        "--property",
        metavar="K=V",
        help="Header, or MQTT user property; repeatable.",
    ),
]
Expiry = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="SECONDS", help="Time to live of the message."),
]
Count = Annotated[
    int, typer.Option("--count", "-n", min=1, metavar="N", help="Send all messages N times.")
]
Rate = Annotated[
    float | None, typer.Option(min=0.001, metavar="N", help="Maximum messages per second.")
]
Format = Annotated[
    Form | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        show_default=False,
        help="Of the bodies: json, text, hex; auto: JSON if valid, else text. [default: text]",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(min=0.0, metavar="SECONDS", help="Time to wait for each reply (--request)."),
]
Retain = Annotated[
    bool,
    typer.Option("--retain", help="Retain it for later subscribers.", rich_help_panel=ONLY_MQTT),
]


@dataclass(frozen=True, slots=True)
class PublishLoad:
    """The bodies to send; without values, the lines of standard input."""

    values: Sequence[Any] | None
    kind: str
    count: int
    rate: float | None

    @property
    def total(self) -> int | None:
        return None if self.values is None else len(self.values) * self.count

    async def __aiter__(self) -> AsyncIterator[Any]:
        if self.values is None:
            async for line in _lines():
                yield parse_body(line, self.kind)
            return
        for _ in range(self.count):
            for value in self.values:
                yield value


@dataclass(frozen=True, slots=True)
class PublishOptions:
    pattern: str
    headers: dict[str, Any]
    expiry: float | None = None
    qos: int | None = None  #: over MQTT only
    retain: bool = False
    timeout: float = 30.0


def parse_body(text: str, kind: str) -> Any:
    if kind == "auto":
        try:
            return json.loads(text)
        except ValueError:
            kind = "text"
    try:
        if kind == "json":
            return json.loads(text)
        if kind == "hex":
            return bytes.fromhex(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not {kind}: {error}") from error
    # Bytes that are not UTF-8 were decoded with `surrogateescape`; send them unchanged.
    raw = os.fsencode(text)
    return text if raw.decode(errors="ignore") == text else raw


def pub(
    address: Address,
    body: Bodies = None,
    url: Url = DEFAULT_URL,
    push: Push = False,
    request: Request = False,
    stream: Stream = False,
    header: Header = None,
    expiry: Expiry = None,
    count: Count = 1,
    rate: Rate = None,
    form: Format = None,
    as_json: FormatJson = False,
    as_hex: FormatHex = False,
    timeout: Timeout = 30.0,
    qos: Qos = None,
    retain: Retain = False,
) -> None:
    """Send messages: publish, send to a queue, append to a stream, or call a service.

    `penstock pub demo.hello "Hello"`

    `penstock pub mqtt://localhost sensors/7/report --json '{"c": 21.5}' --retain`

    `penstock pub padres://localhost '[class,stock],[symbol,IBM],[price,45]'`
    """
    url, (address, *body) = split_broker_url(
        [address, *(body or ())], url, "the subject or topic to send to"
    )
    protocol = protocol_of(url)
    reject_options(
        protocol,
        push=push,
        request=request,
        stream=stream,
        header=header is not None,
        qos=qos is not None,
        retain=retain,
    )
    if protocol is BrokerProtocol.PADRES:
        from penstock.cli.padres import publish_publications

        words = [address, *body]
        load = PublishLoad(None if words == ["-"] else words, "text", count, rate)
        log_warnings_plainly()
        asyncio.run(publish_publications(url, load, rate))
        return
    if protocol is BrokerProtocol.MQTT:
        require_topic(address)
    pattern = choose_flag("publish", push=push, request=request, stream=stream)
    kind = choose_format(form, "text", json=as_json, hex=as_hex)
    from_stdin = not body or body == ["-"]
    values = None if from_stdin else [parse_body(text, kind) for text in body]
    options = PublishOptions(
        pattern=pattern,
        headers=parse_headers(header or [], protocol),
        expiry=expiry,
        qos=None if protocol is not BrokerProtocol.MQTT else 1 if qos is None else qos,
        retain=retain,
        timeout=timeout,
    )
    log_warnings_plainly()
    asyncio.run(_pub(url, address, PublishLoad(values, kind, count, rate), options))


async def _pub(url: str, address: str, load: PublishLoad, options: PublishOptions) -> None:
    async with connect(url) as fabric:
        if options.pattern == "request":
            await _request(fabric, address, load, options)
            return
        sender = _sender(fabric, address, options)
        try:
            await _send_all(load, sender, options)
        except asyncio.CancelledError:
            async with asyncio.timeout(FLUSH_SECONDS):
                await sender.flush()
            raise
        await sender.flush()


def _sender(fabric: Fabric, address: str, options: PublishOptions) -> MessageSender:
    if options.qos is not None:
        return fabric.mqtt.publisher(address, qos=options.qos, retain=options.retain)
    if options.pattern == "publish":
        return fabric.publisher(address)
    return fabric.push(address) if options.pattern == "push" else fabric.stream(address)


async def _request(
    fabric: Fabric, service: str, load: PublishLoad, options: PublishOptions
) -> None:
    async for value in load:
        reply = await fabric.request(
            service, value, headers=options.headers, timeout=options.timeout
        )
        typer.echo(reply.body.decode(errors="backslashreplace"))


async def _send_all(load: PublishLoad, sender: MessageSender, options: PublishOptions) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    many = load.total is None or load.total >= PROGRESS_MESSAGES
    progress = Progress(
        "sending",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not (many and console.is_terminal),
        transient=True,
    )
    began = time.monotonic()
    sent = 0
    with progress:
        task = progress.add_task("sending", total=load.total)
        async for value in load:
            if load.rate is not None:
                await asyncio.sleep(began + sent / load.rate - time.monotonic())
            await sender.post(value, headers=options.headers, ttl=options.expiry)
            sent += 1
            progress.update(task, completed=sent)
    if many and console.is_terminal:
        seconds = time.monotonic() - began
        console.print(f"{sent:,} messages in {seconds:.1f} s, {sent / seconds:,.0f} per second")


async def _lines() -> AsyncIterator[str]:
    """The lines of standard input, read without blocking the loop."""
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n").decode(errors="surrogateescape")
        return
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        yield line.rstrip(b"\r\n").decode(errors="surrogateescape")
