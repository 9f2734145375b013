"""`penstock adv`: advertises, and publishes the lines of standard input.

An advertisement lasts as long as its client is connected, which is until the end of the input or
Ctrl-C. Each line is a publication and must conform to an advertisement.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

import typer

from penstock.cli.client_options import (
    Url,
    log_warnings_plainly,
    split_broker_url,
)
from penstock.client.padres import PadresClient
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.errors import PenstockError

DEFAULT_URL = "padres://guest:guest@127.0.0.1:5680"

Texts = Annotated[
    list[str],
    typer.Argument(
        help="Advertisements, such as [class,eq,stock],[price,>,0]. The broker's URL may be first."
    ),
]
Stay = Annotated[
    bool, typer.Option("--stay", help="Do not read standard input; end with Ctrl-C or SIGTERM.")
]


def adv(texts: Texts, url: Url = DEFAULT_URL, stay: Stay = False) -> None:
    """Advertise publications, and publish the lines of standard input.

    `penstock adv padres://localhost '[class,eq,stock],[price,>,0]' < quotes.txt`
    """
    url, texts = split_broker_url(texts, url, "the advertisement")
    if protocol_of(url) is not BrokerProtocol.PADRES:
        raise typer.BadParameter(f"{url}: advertisements need padres://host:port/BrokerID")
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
