"""`penstock pump`: the components of the pump, each a command.

`penstock pump --conf FILE` runs what the file is of, so that a site can switch by changing the
command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.client_options import DEFAULT_URL, Url, parse_duration
from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.cli.shutdown import stop_event
from penstock.core.config import LogSettings
from penstock.core.logs import configure_logs
from penstock_pump.commands import fleet, lake, options
from penstock_pump.commands.options import component_settings, read
from penstock_pump.commands.run import run
from penstock_pump.config.settings import Component

# `penstock pump demo`: a folder carried to another, as `penstock up` shows it.

FOLDER = "pump"


def demo(
    url: Url = DEFAULT_URL,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="A station writes a file this often.")
    ] = "5s",
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Carry what lands in DATA/pump/inbox to DATA/pump/mirror, and let stations write there."""
    home = prepare(file, pairs, data).settings.data
    asyncio.run(_run_demo(url, (home / FOLDER).absolute(), parse_duration(every), with_stdin))


async def _run_demo(url: str, home: Path, every: float, with_stdin: bool) -> None:
    from penstock_pump.demo import PumpDemo

    shown = PumpDemo(home, url, every)
    async with stop_event(with_stdin) as stop:
        await shown.run(stop, lambda: typer.echo(f"penstock pump ready: {shown.inbox.as_uri()}"))


app = typer.Typer(
    help="Files announced, fetched, winnowed and announced again, as Sarracenia does it.",
    epilog="Try `penstock pump subscribe -d DIR --file-directories FROM` "
    "and `penstock pump post --base-url file: FROM`.",
)

Paths = Annotated[list[Path] | None, typer.Argument(help="Files and directories.")]
File = Annotated[Path, typer.Argument(help="A line a message.")]


@app.callback(invoke_without_command=True)
def pump(
    context: typer.Context,
    conf: options.Conf = None,
    component: Annotated[
        Component | None, typer.Option(help="What the file is of, if its folder does not say.")
    ] = None,
    instance: options.Instance = None,
    metrics: options.Metrics = None,
    pairs: options.Set = None,
    verbose: options.Verbose = False,
) -> None:
    """Files announced, fetched, winnowed and announced again, as Sarracenia does it."""
    configure_logs(
        LogSettings(level="warning")
    )  # reading a configuration may have something to say
    if context.invoked_subcommand is not None:
        return
    if conf is None:
        typer.echo(context.get_help())
        raise typer.Exit
    given = {**options.pairs_given(pairs), **({} if instance is None else {"instance": instance})}
    run(read(conf, component, given), verbose=verbose, metrics=metrics)


def _poster(
    path: Paths = None,
    conf: options.Conf = None,
    broker: options.Broker = None,
    post_broker: options.PostBroker = None,
    exchange: options.PostExchange = None,
    post_exchange: options.PostExchange = None,
    base_url: options.BaseUrl = None,
    base_dir: options.BaseDir = None,
    form: options.Format = None,
    sum_method: options.SumMethod = None,
    blocksize: options.Blocksize = None,
    accept: options.Accept = None,
    reject: options.Reject = None,
    name: options.Name = None,
    state: options.State = None,
    metrics: options.Metrics = None,
    pairs: options.Set = None,
    verbose: options.Verbose = False,
) -> None:
    """The flags of post and watch."""


def _subscription(
    conf: options.Conf = None,
    broker: options.Broker = None,
    exchange: options.Exchange = None,
    subtopic: options.Subtopic = None,
    topic_prefix: options.TopicPrefix = None,
    queue: options.Queue = None,
    accept: options.Accept = None,
    reject: options.Reject = None,
    directory: options.Directory = None,
    mirror: options.Mirror = None,
    strip: options.Strip = None,
    flatten: options.Flatten = None,
    private_hosts: options.PrivateHosts = None,
    file_directories: options.FileDirectories = None,
    post_broker: options.PostBroker = None,
    post_exchange: options.PostExchange = None,
    base_url: options.BaseUrl = None,
    base_dir: options.BaseDir = None,
    form: options.Format = None,
    destination: options.Destination = None,
    name: options.Name = None,
    instance: options.Instance = None,
    state: options.State = None,
    metrics: options.Metrics = None,
    pairs: options.Set = None,
    verbose: options.Verbose = False,
) -> None:
    """The flags of all that hear posts; what one has no use for, it leaves."""


def _add(component: Component, flags: Callable[..., None]) -> None:
    """A command with these flags, which are its settings' names."""

    @wraps(flags)
    def command(
        verbose: bool = False, metrics: int | None = None, exchange: Any = None, **given: Any
    ) -> None:
        if component in (Component.POST, Component.WATCH):
            given["post_exchange"] = given["post_exchange"] or exchange
        else:
            given["exchange"] = exchange
        run(component_settings(component, **given), verbose=verbose, metrics=metrics)

    app.command(component.value, help=HELP[component])(command)


@app.command()
def save(
    file: File,
    conf: options.Conf = None,
    broker: options.Broker = None,
    exchange: options.Exchange = None,
    queue: options.Queue = None,
    pairs: options.Set = None,
) -> None:
    """Put what waits in a queue into a file, until the queue is quiet."""
    settings = component_settings(
        Component.SAVE, conf, pairs, broker=broker, exchange=exchange, queue=queue, file=file
    )
    run(settings)


@app.command()
def restore(
    file: File,
    conf: options.Conf = None,
    broker: options.Broker = None,
    post_exchange: options.PostExchange = None,
    pairs: options.Set = None,
) -> None:
    """Publish again what was saved."""
    settings = component_settings(
        Component.RESTORE, conf, pairs, broker=broker, post_exchange=post_exchange, file=file
    )
    run(settings)


HELP = {
    Component.POST: "Announce files, and what is in directories, once.",
    Component.WATCH: "Announce what changes in directories, for good.",
    Component.SUBSCRIBE: "Fetch what is announced.",
    Component.SARRA: "Fetch what is announced, and announce our own copy.",
    Component.WINNOW: "Of equal announcements, let the first through.",
    Component.SHOVEL: "Carry announcements from broker to broker.",
    Component.SENDER: "Push files that are here to a server, as they are announced.",
    Component.REPORT: "Show what became of files, as it is reported.",
}

for _each in (Component.POST, Component.WATCH):
    _add(_each, _poster)
for _each in (
    Component.SUBSCRIBE,
    Component.SARRA,
    Component.WINNOW,
    Component.SHOVEL,
    Component.SENDER,
    Component.REPORT,
):
    _add(_each, _subscription)
for _command in (fleet.start, fleet.stop, fleet.status, fleet.sanity):
    app.command()(_command)
app.command()(lake.keep)
app.command()(lake.trace)
app.command()(lake.summary)
app.command()(demo)
