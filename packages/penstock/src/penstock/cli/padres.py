"""Publications from the command line: what `pub`, `sub` and `adv` do over PADRES."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, Final

import typer

from penstock.client.padres import PadresClient, ReceivedPublication
from penstock.content import Variable, parse_publication
from penstock.content.advertisement_inference import AdvertisementInference

#: Publications on their way that were not confirmed yet.
MAX_UNCONFIRMED: Final = 500


async def publish_publications(
    url: str, publications: AsyncIterable[str], rate: float | None
) -> None:
    """Advertise what is seen, publish it, and wait until all of it is safe."""
    async with PadresClient(url) as client:
        announced: list[str] = []

        def announce(text: str) -> str:
            announced.append(text)
            return ""  # all is withdrawn together

        announcing = AdvertisementInference(announce, lambda id_: None)
        waiting: set[asyncio.Future[str]] = set()
        began, sent = time.monotonic(), 0
        async for text in publications:
            announcing.on_publication(parse_publication(text))
            while announced:
                await client.advertise(announced.pop())
            if rate is not None:
                await asyncio.sleep(began + sent / rate - time.monotonic())
            waiting.add(asyncio.ensure_future(await client.post(text)))
            sent += 1
            if len(waiting) >= MAX_UNCONFIRMED:
                waiting = await _wait_for_some(waiting)
        for one in waiting:
            await one


async def _wait_for_some(waiting: set[asyncio.Future[str]]) -> set[asyncio.Future[str]]:
    """Until one is safe; returns those that are not. One that was refused ends it all."""
    done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for one in done:
        await one
    return left


async def watch_publications(
    url: str, wanted: Sequence[str], name: str | None, count: int | None, shown_as: str
) -> None:
    show = PRINTERS[shown_as]
    async with PadresClient(url, id=name or "", lasting=name is not None) as client:
        for text in wanted:
            await client.subscribe(text)
        if sys.stderr.isatty():
            typer.secho("listening; Ctrl-C ends", dim=True, err=True)
        seen = 0
        async for received in client:
            show(received)
            seen += 1
            if seen == count:
                return


def format_publication(received: ReceivedPublication) -> str:
    payload = f" {format_payload(received.payload)}" if received.payload else ""
    return f"{received.text}{payload}"


def format_payload(payload: bytes) -> str:
    return payload.decode(errors="backslashreplace")


def publication_record(received: ReceivedPublication) -> dict[str, Any]:
    """A publication as one JSON object; a payload that is no text goes as base64."""
    attributes = {
        name: f"${value.kind.value}${value.name}" if isinstance(value, Variable) else value
        for name, value in received.attributes.items()
    }
    told: dict[str, Any] = {
        "id": received.id,
        "source": received.source,
        "broker": received.broker,
        "time": received.time.isoformat(),
        "class": received.class_name,
        "attributes": attributes,
    }
    if received.payload:
        try:
            told["payload"] = received.payload.decode()
        except UnicodeDecodeError:
            told["payload_base64"] = b64encode(received.payload).decode()
    return told


def _show_line(received: ReceivedPublication) -> None:
    from rich.console import Console
    from rich.text import Text

    said = Text(received.source, style="cyan")
    said.append(f" {format_publication(received)}", style="default")
    Console().print(said, soft_wrap=True)


PRINTERS: dict[str, Callable[[ReceivedPublication], None]] = {
    "auto": _show_line,
    "text": lambda received: typer.echo(format_publication(received)),
    "hex": lambda received: typer.echo(received.payload.hex()),
    "json": lambda received: typer.echo(
        json.dumps(publication_record(received), ensure_ascii=False)
    ),
}
