"""`penstock deploy`: an overlay of brokers, with its clients, from one file."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.panda.commands import DeployerCommands, DeployerExit
from penstock.cli.panda.deployment import Deployment
from penstock.cli.panda.machine import MachineAccess
from penstock.cli.panda.topology import parse_topology
from penstock.cli.shutdown import stop_event

File = Annotated[
    Path | None,
    typer.Argument(metavar="TOPOLOGY", help="What runs where and when; without it, a prompt."),
]
Logs = Annotated[Path, typer.Option("--logs", metavar="DIR", help="Where logs are collected.")]
Seconds = Annotated[
    float | None, typer.Option("--for", metavar="SECONDS", help="Stop after so long.")
]
Home = Annotated[str, typer.Option("--home", help="The folder of the deployment on each machine.")]
Login = Annotated[str, typer.Option("--login", help="The user on other machines.")]
Port = Annotated[int, typer.Option("--port", help="The port of SSH there.")]
Key = Annotated[Path | None, typer.Option("--key", help="The private key for them.")]
KnownHosts = Annotated[Path | None, typer.Option("--known-hosts", help="Whose keys are known.")]
Package = Annotated[
    str, typer.Option("--package", help="What `install` puts there: a name, a URL or a file here.")
]
Python = Annotated[str, typer.Option("--python", help="What to install it with, there.")]
Program = Annotated[
    str, typer.Option("--program", help="What to run for `penstock`, if not what was installed.")
]
AlwaysSsh = Annotated[bool, typer.Option("--ssh", help="Reach this machine over SSH, too.")]


def deploy(
    file: File = None,
    logs: Logs = Path("logs"),
    seconds: Seconds = None,
    home: Home = "penstock-deployment",
    login: Login = "",
    port: Port = 22,
    key: Key = None,
    known_hosts: KnownHosts = None,
    package: Package = "penstock",
    python: Python = "python3",
    program: Program = "",
    always_ssh: AlwaysSsh = False,
) -> None:
    """Start an overlay of brokers and what uses it, on this machine and others over SSH.

    Everything at time 0 first; the rest when all brokers and links are seen. Ctrl-C stops it all,
    and collects what processes have written.
    """
    access = MachineAccess(
        home, login, port, key, known_hosts, package, tuple(program.split()), python
    )

    def make(text: str) -> Deployment:
        topology = parse_topology(text, str(file) if file else "topology")
        return Deployment(topology, access, typer.echo, always_ssh=always_ssh)

    if file is None:
        asyncio.run(_talk(DeployerCommands(make, logs, typer.echo)))
    else:
        asyncio.run(_run(make(file.read_text()), logs, seconds))


async def _run(deployment: Deployment, logs: Path, seconds: float | None) -> None:
    async with stop_event() as stop:
        running = asyncio.create_task(deployment.deploy())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), seconds)
        finally:
            running.cancel()
            stopping.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)
            await deployment.stop()
            await deployment.collect(logs)
            await deployment.close()


async def _talk(commands: DeployerCommands) -> None:
    """Until the end of what is typed."""
    try:
        while True:
            if sys.stdin.isatty():
                typer.echo("PANDA> ", nl=False)
            line = await asyncio.to_thread(sys.stdin.readline)
            if not line:
                return
            await commands.run(line)
    except DeployerExit:
        return
    finally:
        await commands.close()
