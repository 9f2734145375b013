"""`penstock deploy`: runs an overlay of brokers and its clients from one file."""

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
    typer.Argument(metavar="TOPOLOGY", help="Topology file; without it, a prompt."),
]
Logs = Annotated[
    Path, typer.Option("--logs", metavar="DIR", help="Directory for the collected logs.")
]
Seconds = Annotated[
    float | None, typer.Option("--for", metavar="SECONDS", help="Stop after this time.")
]
Home = Annotated[str, typer.Option("--home", help="Folder of the deployment on each machine.")]
Login = Annotated[str, typer.Option("--login", help="User on other machines.")]
Port = Annotated[int, typer.Option("--port", help="SSH port.")]
Key = Annotated[Path | None, typer.Option("--key", help="Private key.")]
KnownHosts = Annotated[Path | None, typer.Option("--known-hosts", help="Known hosts file.")]
Package = Annotated[
    str, typer.Option("--package", help="Package to install: a name, a URL or a local file.")
]
Python = Annotated[str, typer.Option("--python", help="Python to install it with.")]
Program = Annotated[
    str, typer.Option("--program", help="Command to run instead of the installed `penstock`.")
]
AlwaysSsh = Annotated[bool, typer.Option("--ssh", help="Use SSH for this machine, too.")]


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
    """Start an overlay of brokers and its clients, on this machine and others over SSH.

    Steps at time 0 run first; the others when all brokers and links are up. Ctrl-C stops all
    processes and collects their logs.
    """
    access = MachineAccess(
        home, login, port, key, known_hosts, package, tuple(program.split()), python
    )

    def make(text: str) -> Deployment:
        topology = parse_topology(text, str(file) if file else "topology")
        return Deployment(topology, access, typer.echo, always_ssh=always_ssh)

    if file is None:
        asyncio.run(_prompt(DeployerCommands(make, logs, typer.echo)))
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


async def _prompt(commands: DeployerCommands) -> None:
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
