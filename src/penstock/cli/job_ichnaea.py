"""The commands of the Ichnaea application, by its names: `fake:process`, `build-models:request`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from penstock.cli.fabric import DEFAULT_URL
from penstock.cli.job_options import BrokerUrl, ConnectionType
from penstock.cli.job_submit import build, fake, predict
from penstock.cli.job_worker import (
    Fork,
    RequestQueue,
    ResponseExchange,
    ResponseQueue,
    Script,
    Shell,
    worker,
)

Verbose = Annotated[bool, typer.Option("--verbose", help="Say more.")]


def add_ichnaea(app: typer.Typer) -> None:
    """A worker of each type, and a request; not in the help, where ours are."""
    for kind in ("fake", "build-models", "predict-models"):
        app.command(f"{kind}:process", hidden=True)(_process(kind))
    app.command("process", hidden=True)(worker)
    app.command("fake:request", hidden=True)(fake)
    app.command("build-models:request", hidden=True)(build)
    app.command("predict-models:request", hidden=True)(predict)
    requests = typer.Typer(no_args_is_help=True)
    for name, command in (("fake", fake), ("build", build), ("predict", predict)):
        requests.command(name)(command)
    app.add_typer(requests, name="request", hidden=True)


def _process(kind: str) -> Callable[..., None]:
    def process(
        url: BrokerUrl = DEFAULT_URL,
        ichnaea_script: Script = None,
        shell: Shell = "",
        fork: Fork = 1,
        request_queue: RequestQueue = None,
        response_queue: ResponseQueue = None,
        response_exchange: ResponseExchange = None,
        connection_type: ConnectionType = None,
        verbose: Verbose = False,
    ) -> None:
        """Do this type of work, as the Ichnaea worker does: by a script, one error an answer."""
        worker(
            url=url,
            types=[kind],
            fork=fork,
            attempts=1,
            ichnaea_script=ichnaea_script,
            shell=shell,
            request_queue=request_queue,
            response_queue=response_queue,
            response_exchange=response_exchange,
            connection_type=connection_type,
            verbose=verbose,
        )

    return process
