"""`penstock job submit`: ask for work, see how far it is, and keep what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self, get_type_hints

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from penstock.cli.client_options import DEFAULT_URL, log_warnings_plainly, parse_duration
from penstock_jobs.commands.options import (
    BrokerUrl,
    Compatible,
    ConnectionType,
    broker_url,
    durability,
    new_id,
    read_agings,
    read_dataset,
    read_file,
)

if TYPE_CHECKING:
    from penstock_jobs.formats import MessageFormat
    from penstock_jobs.model import JobRequest, JobResponse


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
#: A `JobRequest`: what it is made of is loaded when one is made.
SubmitValue = Any
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where the result goes.")]


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The flags that all have."""

    url: BrokerUrl = DEFAULT_URL
    identity: Identity = None
    priority: Priority = 0
    attempts: Attempts = None
    limit: Limit = None
    detach: Detach = False
    xml: AsXml = False
    debug: Debug = False
    compatible: Compatible = False
    connection_type: ConnectionType = None

    def ask(self, request: JobRequest, output: Path | None) -> None:
        from penstock_jobs.formats import MessageFormat, write_request

        form = MessageFormat.XML if self.xml or self.compatible else MessageFormat.JSON
        if self.debug:
            typer.echo(write_request(request, form).body.decode("utf-8", "replace"))
            return
        log_warnings_plainly()
        response = asyncio.run(self._run(request, form))
        if response is not None:
            _show(response, output)

    async def _run(self, request: JobRequest, form: MessageFormat) -> JobResponse | None:
        from penstock_jobs.client import JobsClient
        from penstock_jobs.model import JobOptions

        limit = None if self.limit is None else parse_duration(self.limit)
        options = JobOptions(self.priority, self.attempts, limit)
        kept = durability(self.compatible)
        url = broker_url(self.url, self.connection_type)
        async with JobsClient(url, durability=kept) as jobs:
            job = await jobs.submit(request, options, form)
            if self.detach:
                typer.echo(job.id)
                return None
            with JobProgressBar(f"{request.type} {job.id}") as bar:
                async for response in job:
                    bar.move(response)
            return await job.result(raises=False)


def submit_command(make: Callable[..., SubmitValue]) -> Callable[..., None]:
    """A command that asks for what `make` makes, with the flags of `make` and those that all have.
    `make` is given the name of the job first; an `output` is where its result goes."""
    own, shared = _flags(make), _flags(SubmitOptions)
    del own["identity"]

    def command(**given: Any) -> None:
        how = SubmitOptions(**{name: given.pop(name) for name in shared})
        how.ask(make(how.identity or new_id(), **given), given.get("output"))

    flags = [*own.values(), *shared.values()]
    command.__signature__ = Signature(flags)  # type: ignore[attr-defined]
    command.__annotations__ = {flag.name: flag.annotation for flag in flags}
    command.__name__, command.__doc__ = make.__name__, make.__doc__
    return command


def _flags(source: Callable[..., object]) -> dict[str, Parameter]:
    hints = get_type_hints(source, include_extras=True)
    return {
        name: parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in signature(source).parameters.items()
    }


@app.command()
@submit_command
def fake(
    identity: str,
    duration: Annotated[float, typer.Option(min=0.0, help="In seconds.")] = 10.0,
    interval: Annotated[float, typer.Option(min=0.001, help="In seconds.")] = 1.0,
) -> SubmitValue:
    """Ask for work that only takes time."""
    from penstock_jobs.model import Fake

    return Fake(identity, duration, interval)


@app.command()
@submit_command
def build(
    identity: str,
    dataset: DatasetFile,
    aging: Annotated[
        str, typer.Option(help="A folder of trials, or a pattern: env%column%-%aging%.txt.")
    ],
    aging_positions: Annotated[
        str,
        typer.Option(metavar="NAME:0.5,…", help="What its seasons' names mean, of the year."),
    ] = "",
    dataset_format: DatasetForm = "Csv",
    output: Output = None,
) -> SubmitValue:
    """Ask for models, from samples of known origin; the result is a zip."""
    from penstock_jobs.model import BuildModels

    trials = read_agings(aging, aging_positions)
    return BuildModels(identity, read_dataset(dataset, dataset_format), trials)


@app.command()
@submit_command
def predict(
    identity: str,
    dataset: DatasetFile,
    models: Annotated[Path, typer.Option("--data", "--models", help="The zip of a build.")],
    dataset_format: DatasetForm = "Csv",
    output: Output = None,
) -> SubmitValue:
    """Ask where samples come from; the result is XML, or a few lines."""
    from penstock_jobs.model import PredictModels

    return PredictModels(identity, read_dataset(dataset, dataset_format), read_file(models))


def _show(response: JobResponse, output: Path | None) -> None:
    from penstock_jobs.formats.xml import write_response

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


# A bar that says how far a job is, and when it will be done.


class JobProgressBar:
    """On standard error: standard output is for results."""

    def __init__(self, title: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=1.0, left="waiting")

    def move(self, response: JobResponse) -> None:
        left = "running"
        if response.end is not None:
            seconds = max((response.end - datetime.now(UTC)).total_seconds(), 0.0)
            when = response.end.astimezone().strftime("%H:%M:%S")
            left = f"done at {when}, in {seconds:.0f} s"
        self._progress.update(self._task, completed=response.progress, left=left)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
