"""`penstock overlay demo`: an overlay of six brokers with clients, in one process."""

from __future__ import annotations

import asyncio
import random
import secrets
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import StopWithStdin
from penstock.cli.shutdown import stop_event

if TYPE_CHECKING:
    from penstock.client.padres import PadresClient

app = typer.Typer(help="Overlays of brokers.", no_args_is_help=True)

#: Each broker, and the one it connects to; the first serves the console.
BROKERS: Final = {
    "London": "",
    "Paris": "London",
    "Berlin": "London",
    "Rome": "Paris",
    "Madrid": "Paris",
    "Oslo": "Berlin",
}
#: Clients that publish quotes, and subscriptions of others.
SELLERS: Final = {"Oslo": "IBM", "Madrid": "SAP"}
BUYERS: Final = (
    ("Rome", "ada", "[class,eq,quote],[price,>,0]"),
    ("Rome", "ben", "[class,eq,quote],[symbol,eq,'IBM'],[price,>,0]"),
    ("Berlin", "cleo", "[class,eq,quote],[symbol,eq,'SAP'],[price,>,50]"),
)
USER: Final = "overlay-demo"


@app.callback()
def overlay() -> None:
    """Overlays of brokers."""


@app.command()
def demo(
    listen: Annotated[
        str, typer.Option(metavar="URL", help="Address of the console.")
    ] = "http://127.0.0.1:15673",
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data directory. [default: a temporary one]")
    ] = None,
    stop_with_stdin: StopWithStdin = False,
) -> None:
    """Start six linked brokers with clients, and the console; Ctrl-C stops them."""
    if data is not None:
        asyncio.run(_run(listen, data, stop_with_stdin))
        return
    with tempfile.TemporaryDirectory(prefix="penstock-overlay-") as folder:
        asyncio.run(_run(listen, Path(folder), stop_with_stdin))


async def _run(listen: str, data: Path, stop_with_stdin: bool) -> None:
    from penstock.broker.users import Users
    from penstock.client.padres import PadresClient
    from penstock.core.config import BrokerSettings, OverlaySettings
    from penstock.server import Broker

    password = secrets.token_urlsafe(24)
    names = list(BROKERS)
    addresses: dict[str, str] = {}
    console = ""
    async with AsyncExitStack() as stack, stop_event(stop_with_stdin) as stop:
        for name, parent in BROKERS.items():
            directory = data / name
            directory.mkdir(parents=True, exist_ok=True)
            users = Users(directory / "users.json")
            users.load()
            if USER in {user.name for user in users.all()}:
                users.delete(USER)
            users.add(USER, password, ("overlay",))
            settings = BrokerSettings(
                listen=["padres://127.0.0.1:0", *([] if parent else [listen])],
                drain_seconds=1.0,
                overlay=OverlaySettings(
                    id=name,
                    neighbours=[f"{addresses[parent]}/{parent}"] if parent else [],
                    accept_links_from=names,
                    accept_commands_from=names,
                    user=USER,
                    password=password,
                    retry_limit=0,
                    retry_pause=1.0,
                    heartbeat=True,
                ),
            )
            broker = await stack.enter_async_context(Broker(settings, data=directory))
            addresses[name] = broker.addresses[0]
            if not parent:
                console = broker.addresses[1]
        clients = []
        for name, symbol in SELLERS.items():
            client = await stack.enter_async_context(PadresClient(addresses[name], id=symbol))
            await client.advertise(f"[class,eq,quote],[symbol,eq,'{symbol}'],[price,>,0]")
            clients.append((client, symbol))
        for name, who, wanted in BUYERS:
            client = await stack.enter_async_context(PadresClient(addresses[name], id=who))
            await client.subscribe(wanted)
        selling = [asyncio.create_task(_sell(client, symbol)) for client, symbol in clients]
        typer.echo(f"penstock overlay demo ready: {console}/#/overlay")
        typer.echo(f"{len(names)} brokers: {', '.join(names)}. Sign in as guest, password guest.")
        await stop.wait()
        for task in selling:
            task.cancel()
        await asyncio.gather(*selling, return_exceptions=True)


async def _sell(client: PadresClient, symbol: str) -> None:
    """A random walk of prices."""
    price = 100.0
    while True:
        price = max(1.0, price + random.uniform(-2, 2))
        await client.publish(f"[class,quote],[symbol,'{symbol}'],[price,{price:.2f}]")
        await asyncio.sleep(random.uniform(0.05, 0.4))
