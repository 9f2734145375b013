"""The commands of the Ichnaea application: `fake:process`, `build-models:request`, and so on.

They have its options and its defaults: XML, queues as its clients declare them, no retries.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.client_options import DEFAULT_URL
from penstock_jobs.commands.options import (
    BrokerUrl,
    Compatible,
    ConnectionType,
    parse_fake,
    read_agings,
    read_dataset,
    read_file,
)
from penstock_jobs.commands.submit import (
    AgingPositions,
    DatasetForm,
    Output,
    SubmitValue,
    fake_request,
    submit_command,
)
from penstock_jobs.commands.worker import (
    Database,
    Fork,
    Keys,
    KnownHosts,
    RequestQueue,
    ResponseExchange,
    ResponseQueue,
    Script,
    Shell,
    Verbose,
    worker,
)

DatasetFile = Annotated[
    Path | None, typer.Option("--dataset", help="Samples: a CSV with ; between cells.")
]
FakeTimes = Annotated[
    str | None,
    typer.Option(
        "--fake", metavar="DURATION:INTERVAL", help="Only take time, in seconds; needs no data."
    ),
]


def add_ichnaea_commands(app: typer.Typer) -> None:
    """Hidden, under their own names."""
    for kind in ("fake", "build-models", "predict-models"):
        app.command(f"{kind}:process", hidden=True)(_process(kind))
    app.command("process", hidden=True)(worker)
    requests = typer.Typer(no_args_is_help=True)
    for name, short, make in (
        ("fake", "fake", fake_request),
        ("build-models", "build", build_request),
        ("predict-models", "predict", predict_request),
    ):
        command = submit_command(make, xml=True, compatible=True)
        app.command(f"{name}:request", hidden=True)(command)
        requests.command(short)(command)
    app.add_typer(requests, name="request", hidden=True)


def _process(kind: str) -> Callable[..., None]:
    def process(
        url: BrokerUrl = DEFAULT_URL,
        ichnaea_script: Script = None,
        shell: Shell = "",
        key: Keys = None,
        known_hosts: KnownHosts = None,
        fork: Fork = 1,
        request_queue: RequestQueue = None,
        response_queue: ResponseQueue = None,
        response_exchange: ResponseExchange = None,
        connection_type: ConnectionType = None,
        database: Database = None,
        compatible: Compatible = True,
        verbose: Verbose = False,
    ) -> None:
        """Run jobs of this type as the Ichnaea worker does: by a script, without retries."""
        worker(
            url=url,
            types=[kind],
            fork=fork,
            attempts=1,
            ichnaea_script=ichnaea_script,
            shell=shell,
            key=key,
            known_hosts=known_hosts,
            request_queue=request_queue,
            response_queue=response_queue,
            response_exchange=response_exchange,
            connection_type=connection_type,
            database=database,
            compatible=compatible,
            verbose=verbose,
        )

    return process


def build_request(
    identity: str,
    dataset: DatasetFile = None,
    aging: Annotated[
        str | None,
        typer.Option(help="A folder of decay trials, or a pattern: env%column%-%aging%.txt."),
    ] = None,
    aging_positions: AgingPositions = "",
    dataset_format: DatasetForm = "Csv",
    fake: FakeTimes = None,
    output: Output = None,
) -> SubmitValue:
    """Build models from samples of known origin; the result is a zip."""
    from penstock_jobs.model import BuildModels

    if fake is not None:
        duration, interval = parse_fake(fake)
        return BuildModels(identity, duration=duration, interval=interval)
    data = read_dataset(_given(dataset, "--dataset"), dataset_format, foreign=True)
    trials = read_agings(_given(aging, "--aging"), aging_positions, foreign=True)
    return BuildModels(identity, data, trials)


def predict_request(
    identity: str,
    dataset: DatasetFile = None,
    models: Annotated[
        Path | None, typer.Option("--data", "--models", help="The zip of a build job.")
    ] = None,
    dataset_format: DatasetForm = "Csv",
    fake: FakeTimes = None,
    output: Output = None,
) -> SubmitValue:
    """Predict the origin of samples; the result is text, or XML, JSON or CSV by its file name."""
    from penstock_jobs.model import PredictModels

    if fake is not None:
        duration, interval = parse_fake(fake)
        return PredictModels(identity, duration=duration, interval=interval)
    data = read_dataset(_given(dataset, "--dataset"), dataset_format, foreign=True)
    return PredictModels(identity, data, read_file(_given(models, "--data")))


def _given(value: Any, option: str) -> Any:
    if value is None:
        raise typer.BadParameter(f"{option} is missing")
    return value
