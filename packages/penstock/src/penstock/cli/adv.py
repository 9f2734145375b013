"""`penstock adv`: advertise, and publish what comes on standard input.

An advertisement lasts as long as its client is connected; so does this command. Each line of
standard input is a publication, which has to conform; at its end, or with Ctrl-C, all is withdrawn.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

import typer

from penstock.cli.client_options import (
    PADRES,
    Url,
    log_warnings_plainly,
    protocol_of,
    split_broker_url,
)
from penstock.client.padres import PadresClient
from penstock.core.errors import PenstockError

DEFAULT_URL = "padres://guest:guest@127.0.0.1:5680"

Texts = Annotated[
    list[str],
    typer.Argument(
        help="Advertisements, such as [class,eq,stock],[price,>,0]. A broker's URL may come first."
    ),
]
Stay = Annotated[
    bool, typer.Option("--stay", help="Publish nothing; stay until Ctrl-C or SIGTERM.")
]


def adv(texts: Texts, url: Url = DEFAULT_URL, stay: Stay = False) -> None:
    """Advertise publications, and publish the lines of standard input.

    `penstock adv padres://localhost '[class,eq,stock],[price,>,0]' < quotes.txt`
    """
    url, texts = split_broker_url(texts, url, "the advertisement")
    if protocol_of(url) != PADRES:
        raise typer.BadParameter(f"{url}: advertisements are PADRES': padres://host:port/BrokerID")
    log_warnings_plainly()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_adv(url, texts, stay))


async def _adv(url: str, texts: list[str], stay: bool) -> None:
    from penstock.cli.pub import PublishLoad
    from penstock.cli.shutdown import stop_event

    async with PadresClient(url) as client:
        for text in texts:
            typer.echo(await client.advertise(text))
        if stay:
            async with stop_event() as stop:
                await stop.wait()
            return
        async for line in PublishLoad(None, "text", 1, None):
            if not line.strip():
                continue
            try:
                await client.publish(line)
            except PenstockError as error:
                typer.secho(f"{line}: {error}", fg="red", err=True)
