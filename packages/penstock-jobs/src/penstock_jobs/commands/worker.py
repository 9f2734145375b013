"""`penstock job worker`: take requests and do the work, until told to stop."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.client_options import DEFAULT_URL, parse_duration
from penstock.cli.metrics_server import serve_metrics
from penstock.cli.shutdown import stop_event
from penstock.core.config import LogSettings
from penstock.core.logs import configure_logs
from penstock_jobs.commands.options import (
    ICHNAEA,
    BrokerUrl,
    Compatible,
    ConnectionType,
    broker_url,
    durability,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from penstock_jobs.worker.factory import WorkerPlan
    from penstock_jobs.worker.history_check import HistoryCheck

Types = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="TYPE", help="Only these types of work; repeatable."),
]
Fork = Annotated[int, typer.Option("--fork", "-n", min=1, help="So many jobs at a time.")]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="MODULE[:NAME]", help="Functions that may be called."),
]
Program = Annotated[
    list[str] | None,
    typer.Option("--program", metavar="PATH", help="Programs that may be run as commands."),
]
Script = Annotated[
    str | None,
    typer.Option(
        "--ichnaea-script",
        "-i",
        metavar="COMMAND",
        help="Does fake, build and predict instead of what is built in.",
        rich_help_panel=ICHNAEA,
    ),
]
Shell = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Where scripts and commands run: here, or ssh://user@host.",
        rich_help_panel=ICHNAEA,
    ),
]
RequestQueue = Annotated[
    str | None,
    typer.Option(help="Where requests are taken from.", rich_help_panel=ICHNAEA),
]
ResponseExchange = Annotated[
    str | None,
    typer.Option(help="Where responses go.", rich_help_panel=ICHNAEA),
]
ResponseQueue = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Queues to bind to the responses.", rich_help_panel=ICHNAEA),
]
Keys = Annotated[list[Path] | None, typer.Option("--key", help="A key for SSH.")]
KnownHosts = Annotated[Path | None, typer.Option(help="Hosts that SSH may trust.")]
Spark = Annotated[
    str,
    typer.Option(
        envvar="PENSTOCK_SPARK_MASTER",
        metavar="MASTER",
        help="Where models are built, such as local[*]; without, here and one after the other.",
    ),
]
Methods = Annotated[
    str, typer.Option(metavar="A,B", help="Classifiers that a build tries; by default all.")
]
Attempts = Annotated[int, typer.Option(min=1, max=100, help="How often work is tried.")]
Recycle = Annotated[
    int | None, typer.Option(min=1, help="A process is replaced after so many pieces of work.")
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="PENSTOCK_DATABASE",
        help="Keep the history here, and answer nothing twice that it knows of.",
    ),
]
Metrics = Annotated[
    int | None, typer.Option(min=0, max=65535, help="A port for Prometheus, on loopback.")
]

Soft = Annotated[
    str | None, typer.Option(metavar="TIME", help="When work is asked to end: 90s, 2h.")
]
Hard = Annotated[str | None, typer.Option(metavar="TIME", help="When it is ended.")]
Grace = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="On a stop, jobs may take so long before they are given "
        "back; by default as long as they like.",
    ),
]


def worker(
    url: BrokerUrl = DEFAULT_URL,
    types: Types = None,
    fork: Fork = 1,
    allow: Allow = None,
    program: Program = None,
    spark: Spark = "",
    methods: Methods = "",
    soft: Soft = None,
    hard: Hard = None,
    attempts: Attempts = 4,
    recycle: Recycle = None,
    grace: Grace = None,
    database: Database = None,
    metrics: Metrics = None,
    retry_seconds: Annotated[
        float, typer.Option(min=0.0, help="Seconds to retry while the broker is unreachable.")
    ] = 0.0,
    patience: Annotated[float | None, typer.Option(min=0.0, hidden=True)] = None,
    compatible: Compatible = False,
    ichnaea_script: Script = None,
    shell: Shell = "",
    key: Keys = None,
    known_hosts: KnownHosts = None,
    request_queue: RequestQueue = None,
    response_exchange: ResponseExchange = None,
    response_queue: ResponseQueue = None,
    connection_type: ConnectionType = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")] = False,
    with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", help="Stop when standard input ends.", hidden=True),
    ] = False,
) -> None:
    """Take requests and do the work: one line when it is ready, a clean stop on SIGTERM."""
    from penstock_jobs.worker.completion import JobRetryPolicy
    from penstock_jobs.worker.factory import WorkerPlan
    from penstock_jobs.worker.worker import WorkerSettings

    configure_logs(LogSettings(level="info" if verbose else "warning"))
    plan = WorkerPlan(
        types=tuple(each.replace("-", "_") for each in types or ()),
        slots=fork,
        script=tuple(shlex.split(ichnaea_script or "")),
        shell=shell,
        keys=tuple(key or ()),
        known_hosts=known_hosts,
        functions=tuple(allow or ()),
        programs=tuple(program or ()),
        spark=spark,
        methods=tuple(filter(None, methods.split(","))),
        recycle=recycle,
        durability=durability(compatible),
        request_queue=request_queue,
        response_queues=tuple(filter(None, (response_queue or "").split(","))),
        retry_seconds=retry_seconds if patience is None else patience,
        settings=WorkerSettings(
            slots=fork,
            backoff=JobRetryPolicy(attempts),
            soft=None if soft is None else parse_duration(soft),
            hard=None if hard is None else parse_duration(hard),
            response_exchange=response_exchange,
        ),
    )
    where = broker_url(url, connection_type)
    stopping = None if grace is None else parse_duration(grace)
    asyncio.run(_run(where, plan, database, metrics, stopping, with_stdin))


async def _run(
    url: str,
    plan: WorkerPlan,
    database: str | None,
    metrics: int | None,
    grace: float | None,
    with_stdin: bool,
) -> None:
    from penstock_jobs.worker.factory import build_worker

    async with AsyncExitStack() as opened, stop_event(with_stdin) as stop:
        history_check = (
            None if database is None else await _history(opened, url, database, plan.retry_seconds)
        )
        worker = build_worker(url, plan, history_check)
        if metrics is not None:
            _serve(opened, worker.worker_metrics.registry, metrics)
        await worker.open()
        typer.echo(f"penstock job worker ready: {worker.name}, {', '.join(worker.types)}")
        await worker.run(stop, grace)


async def _history(
    opened: AsyncExitStack, url: str, database: str, retry_seconds: float
) -> HistoryCheck:
    import penstock_store
    from penstock.wire.amqp091.address import parse_amqp_url
    from penstock_jobs.history.recorder import JobRecorder
    from penstock_jobs.history.repository import JobRepository
    from penstock_jobs.worker.history_check import HistoryCheck

    repository = JobRepository(opened.enter_context(penstock_store.open(database, Path())))
    recorder = JobRecorder(parse_amqp_url(url), repository, retry_seconds)
    await recorder.open()
    opened.push_async_callback(recorder.close)
    return HistoryCheck(repository)


def _serve(opened: AsyncExitStack, registry: CollectorRegistry, port: int) -> None:
    bound, close = serve_metrics(port, registry)
    opened.callback(close)
    typer.echo(f"penstock job worker figures: http://127.0.0.1:{bound}/metrics")
