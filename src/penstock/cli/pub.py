"""`penstock pub`: send messages from the command line.

Each body given, or each line of standard input, is a message; all are confirmed by the broker
before the command ends well. Ctrl-C stops taking new ones and still waits for those sent.
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
from typing import Annotated, Any, Final

import typer

from penstock.cli.fabric import DEFAULT_URL, Url, chosen, parse_headers, speak_plainly
from penstock.client import Fabric, Outflow, connect

#: From here on a person would like to see how far it is.
MANY: Final = 1000
#: A longer line of standard input is an error.
LINE_BYTES: Final = 1 << 26
FLUSH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, how often and how fast; without values, the lines of standard input."""

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


def parse_body(text: str, kind: str) -> Any:
    try:
        if kind == "json":
            return json.loads(text)
        if kind == "hex":
            return bytes.fromhex(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not {kind}: {error}") from error
    # What was not UTF-8 came in by `surrogateescape`, and goes out as the bytes it was.
    raw = os.fsencode(text)
    return text if raw.decode(errors="ignore") == text else raw


def pub(
    address: Annotated[
        str, typer.Argument(help="Subject, such as demo.hello; or queue, service or stream.")
    ],
    body: Annotated[
        list[str] | None,
        typer.Argument(help="Messages; none, or -, reads lines from standard input."),
    ] = None,
    url: Url = DEFAULT_URL,
    push: Annotated[bool, typer.Option("--push", help="To one who pulls, kept till then.")] = False,
    request: Annotated[
        bool, typer.Option("--request", help="To a service; prints its answers.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Append to a stream.")] = False,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="K=V", help="May be repeated.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Send all this often.")] = 1,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Messages a second, at most.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Bodies are JSON.")] = False,
    as_hex: Annotated[bool, typer.Option("--hex", help="Bodies are bytes in hex.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for each answer (--request).")
    ] = 30.0,
) -> None:
    """Send messages: publish to a subject, push, append to a stream, or ask a service."""
    pattern = chosen("publish", push=push, request=request, stream=stream)
    kind = chosen("text", json=as_json, hex=as_hex)
    from_stdin = not body or body == ["-"]
    values = None if from_stdin else [parse_body(text, kind) for text in body or ()]
    load = Load(values, kind, count, rate)
    headers = parse_headers(header or [])
    speak_plainly()
    asyncio.run(_pub(url, pattern, address, load, headers, timeout))


async def _pub(
    url: str, pattern: str, address: str, load: Load, headers: dict[str, Any], timeout: float
) -> None:
    async with connect(url) as fabric:
        if pattern == "request":
            await _ask(fabric, address, load, headers, timeout)
            return
        outflow = _outflow(fabric, pattern, address)
        try:
            await _send_all(load, outflow, headers)
        except asyncio.CancelledError:
            async with asyncio.timeout(FLUSH_SECONDS):
                await outflow.flush()
            raise
        await outflow.flush()


def _outflow(fabric: Fabric, pattern: str, address: str) -> Outflow:
    if pattern == "publish":
        return fabric.publisher(address)
    return fabric.push(address) if pattern == "push" else fabric.stream(address)


async def _ask(
    fabric: Fabric, service: str, load: Load, headers: dict[str, Any], timeout: float
) -> None:
    async for value in load:
        answer = await fabric.request(service, value, headers=headers, timeout=timeout)
        typer.echo(answer.body.decode(errors="backslashreplace"))


async def _send_all(load: Load, outflow: Outflow, headers: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    many = load.total is None or load.total >= MANY
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
            await outflow.post(value, headers=headers)
            sent += 1
            progress.update(task, completed=sent)
    if many and console.is_terminal:
        seconds = time.monotonic() - began
        console.print(f"{sent:,} messages in {seconds:.1f} s, {sent / seconds:,.0f} a second")


async def _lines() -> AsyncIterator[str]:
    """The lines of standard input, without ever holding up the loop."""
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n").decode(errors="surrogateescape")
        return
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        yield line.rstrip(b"\r\n").decode(errors="surrogateescape")
