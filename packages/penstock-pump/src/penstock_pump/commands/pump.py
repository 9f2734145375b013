"""`penstock pump`: the components of the pump, each a command.

`penstock pump --conf FILE` runs the component that the file configures, so a site can switch from
Sarracenia by changing the command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.client_options import DEFAULT_URL, Url, parse_duration
from penstock.cli.options import ConfigFile, Data, Overrides, StopWithStdin, prepare
from penstock.cli.shutdown import stop_event
from penstock.core.config import LogSettings
from penstock.core.logs import configure_logs
from penstock_pump.commands import actions, aliases, fleet, lake, options, wis2
from penstock_pump.commands.options import component_settings, read
from penstock_pump.commands.run import run
from penstock_pump.config.settings import Component

HELP = "Announce, fetch, winnow and forward files, compatible with Sarracenia."
DEMO_FOLDER = "pump"
COMPONENT_HELP = {
    Component.POST: "Announce files, and the files in directories, once.",
    Component.WATCH: "Announce files in directories as they change.",
    Component.SUBSCRIBE: "Download announced files.",
    Component.SARRA: "Download announced files, and announce the copies.",
    Component.WINNOW: "Forward the first of equal posts.",
    Component.SHOVEL: "Forward posts from broker to broker.",
    Component.SENDER: "Push local files to a server when they are announced.",
    Component.REPORT: "Print the reports on files.",
    Component.POLL: "List a server regularly, and announce its files.",
    Component.FLOW: "Work as the options say: as flowMain, watch, sender, subscriber or shovel.",
}


def demo(
    url: Url = DEFAULT_URL,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="Time between two files of the stations.")
    ] = "5s",
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Copy files from DATA/pump/inbox to DATA/pump/mirror; simulated stations write files."""
    home = prepare(file, pairs, data).settings.data
    asyncio.run(_run_demo(url, (home / DEMO_FOLDER).absolute(), parse_duration(every), with_stdin))


async def _run_demo(url: str, home: Path, every: float, with_stdin: bool) -> None:
    from penstock_pump.demo import PumpDemo

    demo = PumpDemo(home, url, every)
    async with stop_event(with_stdin) as stop:
        await demo.run(stop, lambda: typer.echo(f"penstock pump ready: {demo.inbox.as_uri()}"))


app = typer.Typer(
    help=HELP,
    epilog="Try `penstock pump subscribe -d DIR --file-directories FROM` "
    "and `penstock pump post --base-url file: FROM`.",
)

Paths = Annotated[list[Path] | None, typer.Argument(help="Files and directories.")]
File = Annotated[Path, typer.Argument(help="JSON, one line per message.")]


@app.callback(invoke_without_command=True, help=HELP)
def pump(
    context: typer.Context,
    conf: options.Conf = None,
    component: Annotated[
        Component | None, typer.Option(help="Component of FILE, if its folder does not name it.")
    ] = None,
    instance: options.Instance = None,
    metrics: options.Metrics = None,
    pairs: options.Set = None,
    verbose: options.Verbose = False,
) -> None:
    configure_logs(LogSettings(level="warning"))  # for warnings about the configuration
    if context.invoked_subcommand is not None:
        return
    if conf is None:
        typer.echo(context.get_help())
        raise typer.Exit
    given = {**options.parse_pairs(pairs), **({} if instance is None else {"instance": instance})}
    run(read(conf, component, given), verbose=verbose, metrics=metrics)


def _poster(
    path: Paths = None,
    conf: options.Conf = None,
    broker: options.Broker = None,
    post_broker: options.PostBroker = None,
    exchange: options.Exchange = None,
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
    """The options of post and watch."""


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
    """The options of components that consume posts; each ignores those it does not use."""


def _add(component: Component, signature: Callable[..., None]) -> None:
    """Adds a command; the names of its options are names of settings."""

    @wraps(signature)
    def command(
        verbose: bool = False, metrics: int | None = None, exchange: Any = None, **given: Any
    ) -> None:
        if component in (Component.POST, Component.WATCH, Component.POLL):
            given["post_exchange"] = given["post_exchange"] or exchange
        else:
            given["exchange"] = exchange
        run(component_settings(component, **given), verbose=verbose, metrics=metrics)

    app.command(component.value, help=COMPONENT_HELP[component])(command)


@app.command()
def save(
    file: File,
    conf: options.Conf = None,
    broker: options.Broker = None,
    exchange: options.Exchange = None,
    queue: options.Queue = None,
    pairs: options.Set = None,
) -> None:
    """Write the messages of a queue to a file, until none arrives any more."""
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
    """Publish the messages of a file that `save` wrote."""
    settings = component_settings(
        Component.RESTORE, conf, pairs, broker=broker, post_exchange=post_exchange, file=file
    )
    run(settings)


for _component in COMPONENT_HELP:
    is_poster = _component in (Component.POST, Component.WATCH, Component.POLL)
    _add(_component, _poster if is_poster else _subscription)
for _command in (
    *(fleet.start, fleet.stop, fleet.restart, fleet.status, fleet.sanity),
    *(actions.declare, actions.cleanup, actions.remove, actions.enable, actions.disable),
    *(actions.foreground, actions.show, actions.features, actions.dump),
    *(actions.log, actions.edit),
    *(lake.archive, lake.trace, lake.summary, demo),
):
    app.command()(_command)
app.command("list")(actions.list_configurations)
app.command("setup", hidden=True)(actions.declare)
app.command(
    "sarracenia",
    hidden=True,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)(aliases.sarracenia)
app.command("keep", hidden=True)(lake.archive)
app.add_typer(wis2.app, name="wis2")
