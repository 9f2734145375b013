"""`penstock pub` and `sub` over PADRES."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, Final

import typer

from penstock.cli.client_options import text_or_base64
from penstock.client.padres import PadresClient, ReceivedPublication
from penstock.content import Variable, parse_publication
from penstock.content.advertisement_inference import AdvertisementInference

MAX_UNCONFIRMED: Final = 500


async def publish_publications(
    url: str, publications: AsyncIterable[str], rate: float | None
) -> None:
    """Advertise and publish, and wait until the broker has confirmed all publications."""
    async with PadresClient(url) as client:
        advertisements: list[str] = []

        def advertise(text: str) -> str:
            advertisements.append(text)
            return ""  # the broker withdraws all at the end of the connection

        inference = AdvertisementInference(advertise, lambda id_: None)
        waiting: set[asyncio.Future[str]] = set()
        started, sent = time.monotonic(), 0
        async for text in publications:
            inference.on_publication(parse_publication(text))
            while advertisements:
                await client.advertise(advertisements.pop())
            if rate is not None:
                await asyncio.sleep(started + sent / rate - time.monotonic())
            waiting.add(asyncio.ensure_future(await client.post(text)))
            sent += 1
            if len(waiting) >= MAX_UNCONFIRMED:
                waiting = await _wait_for_some(waiting)
        for confirmation in waiting:
            await confirmation


async def _wait_for_some(waiting: set[asyncio.Future[str]]) -> set[asyncio.Future[str]]:
    """Until one is confirmed; returns the others. Raises if one was refused."""
    done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for confirmation in done:
        await confirmation
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
    payload = received.payload.decode(errors="backslashreplace")
    return f"{received.text} {payload}" if payload else received.text


def publication_record(received: ReceivedPublication) -> dict[str, Any]:
    """A publication as a JSON object."""
    attributes = {
        name: f"${value.kind.value}${value.name}" if isinstance(value, Variable) else value
        for name, value in received.attributes.items()
    }
    return {
        "id": received.id,
        "source": received.source,
        "broker": received.broker,
        "time": received.time.isoformat(),
        "class": received.class_name,
        "attributes": attributes,
        **(text_or_base64("payload", received.payload) if received.payload else {}),
    }


def _show_line(received: ReceivedPublication) -> None:
    from rich.console import Console
    from rich.text import Text

    line = Text(received.source, style="cyan")
    line.append(f" {format_publication(received)}", style="default")
    Console().print(line, soft_wrap=True)


PRINTERS: dict[str, Callable[[ReceivedPublication], None]] = {
    "auto": _show_line,
    "text": lambda received: typer.echo(format_publication(received)),
    "hex": lambda received: typer.echo(received.payload.hex()),
    "json": lambda received: typer.echo(
        json.dumps(publication_record(received), ensure_ascii=False)
    ),
}
