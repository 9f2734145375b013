"""`penstock job submit`: ask for work, see how far it is, and keep what comes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.durations import seconds
from penstock.cli.fabric import DEFAULT_URL, speak_plainly
from penstock.cli.job_options import (
    BrokerUrl,
    Compatible,
    durability,
    new_id,
    read_agings,
    read_dataset,
    read_file,
)

if TYPE_CHECKING:
    from penstock.jobs.forms import Form
    from penstock.jobs.model import Request, Response

app = typer.Typer(no_args_is_help=True, help="Ask for work, and wait for what comes of it.")

Identity = Annotated[str | None, typer.Option("--id", help="Its name; by default a new one.")]
Priority = Annotated[int, typer.Option(min=0, max=9, help="The highest is done first.")]
Attempts = Annotated[int | None, typer.Option(min=1, max=100, help="At most so many.")]
Limit = Annotated[
    str | None,
    typer.Option("--limit", metavar="TIME", help="It may take so long, such as 90s or 2h."),
]
Detach = Annotated[bool, typer.Option("--detach", help="Print its id and do not wait.")]
AsXml = Annotated[bool, typer.Option("--xml", help="Send it in the form of the Ichnaea clients.")]
Debug = Annotated[bool, typer.Option("--debug", help="Print what would be sent, and send nothing.")]
DatasetFile = Annotated[Path, typer.Option("--dataset", help="Samples, a CSV with ; and ,.")]
DatasetForm = Annotated[
    str, typer.Option("--dataset-format", metavar="Csv|Xml", help="How the data set is written.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where the result goes.")]


@app.command()
def fake(
    url: BrokerUrl = DEFAULT_URL,
    duration: Annotated[float, typer.Option(min=0.0, help="In seconds.")] = 10.0,
    interval: Annotated[float, typer.Option(min=0.001, help="In seconds.")] = 1.0,
    identity: Identity = None,
    priority: Priority = 0,
    attempts: Attempts = None,
    limit: Limit = None,
    detach: Detach = False,
    xml: AsXml = False,
    debug: Debug = False,
    compatible: Compatible = False,
) -> None:
    """Ask for work that only takes time."""
    from penstock.jobs.model import Fake

    request = Fake(identity or new_id(), duration, interval)
    how = _How(url, priority, attempts, limit, detach, xml, debug, compatible)
    how.ask(request, None)


@app.command()
def build(
    dataset: DatasetFile,
    aging: Annotated[
        str, typer.Option(help="A folder of trials, or a pattern: env%column%-%aging%.txt.")
    ],
    url: BrokerUrl = DEFAULT_URL,
    dataset_format: DatasetForm = "Csv",
    output: Output = None,
    identity: Identity = None,
    priority: Priority = 0,
    attempts: Attempts = None,
    limit: Limit = None,
    detach: Detach = False,
    xml: AsXml = False,
    debug: Debug = False,
    compatible: Compatible = False,
) -> None:
    """Ask for models, from samples of known origin; the result is a zip."""
    from penstock.jobs.model import BuildModels

    columns = read_dataset(dataset, dataset_format)
    request = BuildModels(identity or new_id(), columns, read_agings(aging))
    how = _How(url, priority, attempts, limit, detach, xml, debug, compatible)
    how.ask(request, output)


@app.command()
def predict(
    dataset: DatasetFile,
    models: Annotated[Path, typer.Option("--data", "--models", help="The zip of a build.")],
    url: BrokerUrl = DEFAULT_URL,
    dataset_format: DatasetForm = "Csv",
    output: Output = None,
    identity: Identity = None,
    priority: Priority = 0,
    attempts: Attempts = None,
    limit: Limit = None,
    detach: Detach = False,
    xml: AsXml = False,
    debug: Debug = False,
    compatible: Compatible = False,
) -> None:
    """Ask where samples come from; the result is XML, or a few lines."""
    from penstock.jobs.model import PredictModels

    columns = read_dataset(dataset, dataset_format)
    request = PredictModels(identity or new_id(), columns, read_file(models))
    how = _How(url, priority, attempts, limit, detach, xml, debug, compatible)
    how.ask(request, output)


class _How:
    """The flags that all have."""

    def __init__(
        self,
        url: str,
        priority: int,
        attempts: int | None,
        limit: str | None,
        detach: bool,
        xml: bool,
        debug: bool,
        compatible: bool,
    ) -> None:
        self._url = url
        self._priority = priority
        self._attempts = attempts
        self._limit = None if limit is None else seconds(limit)
        self._detach = detach
        self._xml = xml
        self._debug = debug
        self._compatible = compatible

    def ask(self, request: Request, output: Path | None) -> None:
        from penstock.jobs.forms import Form, write_request

        form = Form.XML if self._xml or self._compatible else Form.JSON
        if self._debug:
            typer.echo(write_request(request, form).body.decode("utf-8", "replace"))
            return
        speak_plainly()
        response = asyncio.run(self._run(request, form))
        if response is not None:
            _show(response, output)

    async def _run(self, request: Request, form: Form) -> Response | None:
        from penstock.cli.job_progress import Bar
        from penstock.jobs.client import JobsClient
        from penstock.jobs.options import Options

        options = Options(self._priority, self._attempts, self._limit)
        kept = durability(self._compatible)
        async with JobsClient(self._url, durability=kept) as jobs:
            job = await jobs.submit(request, options, form)
            if self._detach:
                typer.echo(job.id)
                return None
            with Bar(f"{request.type} {job.id}") as bar:
                async for response in job:
                    bar.move(response)
            return await job.result(raises=False)


def _show(response: Response, output: Path | None) -> None:
    from penstock.jobs.forms.xml import write_response

    if response.error is not None:
        typer.echo(f"{response.id}: {response.error}", err=True)
        raise typer.Exit(1)
    if response.models:
        target = output or Path("models.zip")
        target.write_bytes(response.models)
        typer.echo(f"{response.id}: the models are in {target}")
    elif response.results:
        for each in response.results:
            error = "" if each.test_error is None else f", error {each.test_error:.2%}"
            typer.echo(f"{each.name}: {each.predicted_samples}/{each.total_samples}{error}")
        if output is not None:
            output.write_bytes(write_response(response))
            typer.echo(f"{response.id}: the result is in {output}")
    else:
        typer.echo(f"{response.id}: done")
