"""`penstock job submit`: submit a job, show its progress, store its result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, get_type_hints

import typer

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


app = typer.Typer(no_args_is_help=True, help="Submit a job and wait for its result.")

Identity = Annotated[
    str | None, typer.Option("--id", help="The id of the job; by default a new one.")
]
Priority = Annotated[int, typer.Option(min=0, max=9, help="The highest runs first.")]
Attempts = Annotated[int | None, typer.Option(min=1, max=100, help="The most attempts.")]
Limit = Annotated[
    str | None,
    typer.Option("--limit", metavar="TIME", help="Time limit, such as 90s or 2h."),
]
Keep = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long the history stores the job, as 7d.")
]
Detach = Annotated[bool, typer.Option("--detach", help="Print the id and do not wait.")]
AsXml = Annotated[
    bool, typer.Option("--xml/--json", help="Send XML, as the Ichnaea clients do, or JSON.")
]
AgingPositions = Annotated[
    str, typer.Option(metavar="NAME:0.5,…", help="Positions of season names in the year.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Print the request and do not send it.")]
DatasetFile = Annotated[
    Path, typer.Option("--dataset", help="Samples: a CSV with ; between cells.")
]
DatasetForm = Annotated[
    str, typer.Option("--dataset-format", metavar="Csv|Xml", help="The format of the data set.")
]
#: A `JobRequest`, whose module is loaded when a command runs.
SubmitValue = Any
Output = Annotated[Path | None, typer.Option("--output", "-o", help="The file for the result.")]


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options of all submit commands."""

    url: BrokerUrl = DEFAULT_URL
    identity: Identity = None
    priority: Priority = 0
    attempts: Attempts = None
    limit: Limit = None
    keep: Keep = None
    detach: Detach = False
    xml: AsXml = False
    debug: Debug = False
    compatible: Compatible = False
    connection_type: ConnectionType = None

    def submit(self, request: JobRequest, output: Path | None) -> None:
        from penstock_jobs.formats import MessageFormat, write_request

        form = MessageFormat.XML if self.xml else MessageFormat.JSON
        if self.debug:
            typer.echo(write_request(request, form).body.decode("utf-8", "replace"))
            return
        log_warnings_plainly()
        response = asyncio.run(self._run(request, form))
        if response is not None:
            show_result(response, output)

    async def _run(self, request: JobRequest, form: MessageFormat) -> JobResponse | None:
        from penstock_jobs.client import JobsClient
        from penstock_jobs.model import JobOptions

        limit = None if self.limit is None else parse_duration(self.limit)
        keep = None if self.keep is None else parse_duration(self.keep)
        options = JobOptions(self.priority, self.attempts, limit, keep=keep)
        url = broker_url(self.url, self.connection_type)
        async with JobsClient(url, durability=durability(self.compatible)) as jobs:
            job = await jobs.submit(request, options, form)
            if self.detach:
                typer.echo(job.id)
                return None
            with JobProgressBar(f"{request.type} {job.id}") as bar:
                async for response in job:
                    bar.update(response)
            return await job.result(raises=False)


def submit_command(make: Callable[..., SubmitValue], **defaults: bool) -> Callable[..., None]:
    """A command that submits the request of `make`, with the options of `make` and those of all.
    The first argument of `make` is the id of the job; `output` is the file for the result;
    `defaults` are other defaults of shared options."""
    own, shared = _options(make), _options(SubmitOptions)
    del own["identity"]
    for name, default in defaults.items():
        shared[name] = shared[name].replace(default=default)

    def command(**given: Any) -> None:
        options = SubmitOptions(**{name: given.pop(name) for name in shared})
        options.submit(make(options.identity or new_id(), **given), given.get("output"))

    parameters = [*own.values(), *shared.values()]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__name__, command.__doc__ = make.__name__, make.__doc__
    return command


def _options(source: Callable[..., object]) -> dict[str, Parameter]:
    hints = get_type_hints(source, include_extras=True)
    return {
        name: parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in signature(source).parameters.items()
    }


def fake_request(
    identity: str,
    duration: Annotated[float, typer.Option(min=0.0, help="In seconds.")] = 10.0,
    interval: Annotated[float, typer.Option(min=0.001, help="In seconds.")] = 1.0,
) -> SubmitValue:
    """Submit a job that only takes time."""
    from penstock_jobs.model import Fake

    return Fake(identity, duration, interval)


fake = app.command("fake")(submit_command(fake_request))


@app.command()
@submit_command
def build(
    identity: str,
    dataset: DatasetFile,
    aging: Annotated[
        str, typer.Option(help="A folder of decay trials, or a pattern: env%column%-%aging%.txt.")
    ],
    aging_positions: AgingPositions = "",
    dataset_format: DatasetForm = "Csv",
    output: Output = None,
) -> SubmitValue:
    """Build models from samples of known origin; the result is a zip."""
    from penstock_jobs.model import BuildModels

    trials = read_agings(aging, aging_positions)
    return BuildModels(identity, read_dataset(dataset, dataset_format), trials)


@app.command()
@submit_command
def predict(
    identity: str,
    dataset: DatasetFile,
    models: Annotated[Path, typer.Option("--data", "--models", help="The zip of a build job.")],
    dataset_format: DatasetForm = "Csv",
    output: Output = None,
) -> SubmitValue:
    """Predict the origin of samples; the result is text, or XML, JSON or CSV by its file name."""
    from penstock_jobs.model import PredictModels

    return PredictModels(identity, read_dataset(dataset, dataset_format), read_file(models))


Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file", metavar="NAME=PATH", help="A file for the working directory; repeatable."
    ),
]
FunctionName = Annotated[
    str, typer.Argument(metavar="MODULE:FUNCTION", help="As the worker names it.")
]
Values = Annotated[
    list[str] | None,
    typer.Argument(metavar="[VALUE]…", help="Arguments: JSON, or text if it is no JSON."),
]
Keywords = Annotated[
    list[str] | None,
    typer.Option("--keyword", "-k", metavar="NAME=VALUE", help="A keyword argument; repeatable."),
]


@app.command()
@submit_command
def command(
    identity: str,
    argv: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM [ARGUMENT]…", help="What to run.")
    ],
    file: Files = None,
    output: Output = None,
) -> SubmitValue:
    """Run a program on a worker that allows it; its output is shown as it is printed."""
    from penstock_jobs.model import CommandRun

    files = {name: read_file(Path(path)) for name, path in _pairs(file, "--file")}
    return check_request(CommandRun(identity, tuple(argv), files))


@app.command()
@submit_command
def call(
    identity: str,
    function: FunctionName,
    values: Values = None,
    keyword: Keywords = None,
    output: Output = None,
) -> SubmitValue:
    """Call a Python function on a worker that allows it; the result is JSON."""
    from penstock_jobs.model import FunctionCall

    return check_request(FunctionCall(identity, function, *_arguments(values, keyword)))


@app.command()
@submit_command
def spark(
    identity: str,
    function: FunctionName,
    values: Values = None,
    keyword: Keywords = None,
    output: Output = None,
) -> SubmitValue:
    """Call a function with a Spark session as its first argument; the result is JSON."""
    from penstock_jobs.model import SparkCall

    return check_request(SparkCall(identity, function, *_arguments(values, keyword)))


def check_request(request: SubmitValue) -> SubmitValue:
    """As a worker would check it, so that a mistake is reported at once."""
    from penstock_jobs.formats.json import read_request, write_request

    return read_request(write_request(request))


def _arguments(
    values: list[str] | None, keywords: list[str] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    named = {name: _value(text) for name, text in _pairs(keywords, "--keyword")}
    return tuple(_value(text) for text in values or ()), named


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _pairs(texts: list[str] | None, option: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise typer.BadParameter(f"{option} {name}: must be NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


def show_result(response: JobResponse, output: Path | None) -> None:
    if response.error is not None:
        typer.echo(f"{response.id}: {response.error}", err=True)
        raise typer.Exit(1)
    if response.models:
        target = output or Path("models.zip")
        target.write_bytes(response.models)
        typer.echo(f"{response.id}: models written to {target}")
    elif response.results:
        for each in response.results:
            error = "" if each.test_error is None else f", error {each.test_error:.2%}"
            typer.echo(f"{each.name}: {each.predicted_samples}/{each.total_samples}{error}")
        if output is not None:
            output.write_bytes(_file_of(response, output.suffix))
            typer.echo(f"{response.id}: result written to {output}")
    elif response.type == "command" and isinstance(response.value, dict):
        if output is not None:
            output.write_text(str(response.value.get("output", "")))
    elif response.type in ("call", "spark"):
        text = json.dumps(response.value, ensure_ascii=False)
        if output is None:
            typer.echo(text)
        else:
            output.write_text(f"{text}\n")
    else:
        typer.echo(f"{response.id}: done")


def _file_of(response: JobResponse, suffix: str) -> bytes:
    """A prediction in the format that the name of its file asks for; by default as the script
    prints it."""
    from penstock_jobs.http.results import ResultFormat, write_result
    from penstock_jobs.science.report import result_lines

    if suffix.lower() in (".xml", ".json", ".csv"):
        return write_result(response, ResultFormat(suffix.lower()[1:])).body
    lines = [line for each in response.results for line in result_lines(response.id, each)]
    return "".join(f"{line}\n" for line in lines).encode()


class JobProgressBar:
    """On standard error; standard output is for results."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=1.0, left="waiting")

    def update(self, response: JobResponse) -> None:
        if response.output:
            self._progress.stop()  # the output replaces the bar
            typer.echo(response.output, nl=False)
        left = "running"
        if response.end is not None:
            seconds = max((response.end - datetime.now(UTC)).total_seconds(), 0.0)
            when = response.end.astimezone().strftime("%H:%M:%S")
            left = f"done at {when}, in {seconds:.0f} s"
        self._progress.update(self._task, completed=response.progress, left=left)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
