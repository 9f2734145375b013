"""`penstock job worker`: consume requests and run jobs."""

from __future__ import annotations

import asyncio
import math
import shlex
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.client_options import DEFAULT_URL, parse_duration
from penstock.cli.metrics_server import serve_metrics
from penstock.cli.options import StopWithStdin
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
    from penstock.core.retry import RetryPolicy
    from penstock_jobs.worker.factory import WorkerPlan
    from penstock_jobs.worker.history_check import HistoryCheck

Types = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="TYPE", help="Only these types; repeatable."),
]
Fork = Annotated[int, typer.Option("--fork", "-n", min=1, help="Number of jobs to run at once.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="MODULE[:NAME]", help="Functions that requests may call; repeatable."
    ),
]
Coroutines = Annotated[
    bool,
    typer.Option(
        "--async",
        help="Call coroutine functions (async def) on one event loop, as many at once as --fork "
        "says; the only other type is fake.",
    ),
]
Program = Annotated[
    list[str] | None,
    typer.Option("--program", metavar="PATH", help="Programs that requests may run; repeatable."),
]
Script = Annotated[
    str | None,
    typer.Option(
        "--ichnaea-script",
        "-i",
        metavar="COMMAND",
        help="Runs fake, build and predict jobs instead of the built-in code.",
        rich_help_panel=ICHNAEA,
    ),
]
Shell = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Where scripts and commands run: empty for this machine, or ssh://user@host.",
        rich_help_panel=ICHNAEA,
    ),
]
RequestQueue = Annotated[
    str | None,
    typer.Option(help="The queue to consume requests from.", rich_help_panel=ICHNAEA),
]
ResponseExchange = Annotated[
    str | None,
    typer.Option(help="The exchange to publish responses to.", rich_help_panel=ICHNAEA),
]
ResponseQueue = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", help="Queues to bind to the response exchange.", rich_help_panel=ICHNAEA
    ),
]
Keys = Annotated[
    list[Path] | None, typer.Option("--key", help="A private key for SSH; repeatable.")
]
KnownHosts = Annotated[Path | None, typer.Option(help="The known_hosts file for SSH.")]
Spark = Annotated[
    str,
    typer.Option(
        envvar="PENSTOCK_SPARK_MASTER",
        metavar="MASTER",
        help="The Spark master that builds models, such as local[*]; by default without Spark.",
    ),
]
Methods = Annotated[
    str,
    typer.Option(metavar="A,B", help="Kinds of classifiers to build models with; by default all."),
]
Attempts = Annotated[int, typer.Option(min=1, max=100, help="Attempts per job.")]
Recycle = Annotated[int | None, typer.Option(min=1, help="Replace a process after so many tasks.")]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="PENSTOCK_DATABASE",
        help="PostgreSQL for the history; it also prevents jobs from running twice.",
    ),
]
Metrics = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port for Prometheus metrics, on loopback.")
]

Retries = Annotated[
    list[str] | None,
    typer.Option(
        "--retry",
        metavar="TYPE=ATTEMPTS[:FIRST[:LONGEST]]",
        help="Attempts of a type, and the first and longest delay, as call=5:2s:10m; repeatable.",
    ),
]
Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="TYPE=N/UNIT",
        help="The most jobs of a type to start per s, m or h, as command=10/m; repeatable.",
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        envvar="PENSTOCK_JOBS_KEEP",
        help="How long the history stores jobs; by default 30d.",
    ),
]
Soft = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time after which a job is asked to end: 90s, 2h."),
]
Hard = Annotated[str | None, typer.Option(metavar="TIME", help="Time after which a job is ended.")]
RetrySeconds = Annotated[
    float, typer.Option(min=0.0, help="Seconds to retry while the broker is unreachable.")
]
#: The former name of `--retry-seconds`.
Patience = Annotated[float | None, typer.Option(min=0.0, hidden=True)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more, and what jobs print.")]
Grace = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="On a stop, time for running jobs before they are requeued; by default no limit.",
    ),
]


def worker(
    url: BrokerUrl = DEFAULT_URL,
    types: Types = None,
    fork: Fork = 1,
    allow: Allow = None,
    coroutines: Coroutines = False,
    program: Program = None,
    spark: Spark = "",
    methods: Methods = "",
    soft: Soft = None,
    hard: Hard = None,
    attempts: Attempts = 4,
    retry: Retries = None,
    rate: Rates = None,
    recycle: Recycle = None,
    grace: Grace = None,
    database: Database = None,
    keep: Keep = None,
    metrics: Metrics = None,
    retry_seconds: RetrySeconds = 0.0,
    patience: Patience = None,
    compatible: Compatible = False,
    ichnaea_script: Script = None,
    shell: Shell = "",
    key: Keys = None,
    known_hosts: KnownHosts = None,
    request_queue: RequestQueue = None,
    response_exchange: ResponseExchange = None,
    response_queue: ResponseQueue = None,
    connection_type: ConnectionType = None,
    verbose: Verbose = False,
    with_stdin: StopWithStdin = False,
) -> None:
    """Consume requests and run jobs. Prints one line when ready, stops cleanly on SIGTERM."""
    from penstock_jobs.worker.factory import WorkerPlan
    from penstock_jobs.worker.worker import JOB_RETRIES, WorkerSettings

    if coroutines and (program or spark or ichnaea_script or not allow):
        raise typer.BadParameter("--async needs --allow, and runs no programs, scripts or Spark")
    configure_logs(LogSettings(level="info" if verbose else "warning"))
    plan = WorkerPlan(
        types=tuple(each.replace("-", "_") for each in types or ()),
        slots=fork,
        script=script_command(ichnaea_script or "", shell),
        shell=shell,
        keys=tuple(key or ()),
        known_hosts=known_hosts,
        functions=tuple(allow or ()),
        coroutines=coroutines,
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
            retry_policy=replace(JOB_RETRIES, attempts=attempts),
            retry_policies=dict(map(parse_retry, retry or ())),
            rates=dict(map(parse_rate, rate or ())),
            soft=_seconds(soft),
            hard=_seconds(hard),
            response_exchange=response_exchange,
        ),
    )
    broker = broker_url(url, connection_type)
    run = _run(broker, plan, database, metrics, _seconds(grace), with_stdin, _seconds(keep))
    asyncio.run(run)


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration(duration)


def parse_retry(text: str) -> tuple[str, RetryPolicy]:
    """`TYPE=ATTEMPTS:FIRST:LONGEST`; delays are whole seconds, because each has a queue."""
    from penstock_jobs.worker.worker import JOB_RETRIES

    kind, _, rest = text.partition("=")
    attempts, _, delays = rest.partition(":")
    first, _, longest = delays.partition(":")
    if not kind or not attempts.isdecimal() or not 1 <= int(attempts) <= 100:
        raise typer.BadParameter(f"--retry {text}: must be TYPE=ATTEMPTS, as call=5:2s:10m")
    start = max(round(parse_duration(first)), 1) if first else JOB_RETRIES.first
    most = max(parse_duration(longest), start) if longest else max(JOB_RETRIES.longest, start)
    policy = replace(JOB_RETRIES, attempts=int(attempts), first=start, longest=most)
    return kind.replace("-", "_"), policy


def parse_rate(text: str) -> tuple[str, float]:
    kind, _, rate = text.partition("=")
    count, _, unit = rate.partition("/")
    seconds = {"s": 1, "m": 60, "h": 3600}.get(unit)
    try:
        number = float(count)
    except ValueError:
        number = 0.0
    if not kind or seconds is None or not 0 < number < math.inf:
        raise typer.BadParameter(f"--rate {text}: must be TYPE=N/UNIT, as command=10/m")
    return kind.replace("-", "_"), number / seconds


async def _run(
    url: str,
    plan: WorkerPlan,
    database: str | None,
    metrics: int | None,
    grace: float | None,
    with_stdin: bool,
    retention: float | None = None,
) -> None:
    from penstock_jobs.worker.factory import build_worker

    async with AsyncExitStack() as opened, stop_event(with_stdin) as stop:
        history_check = (
            None if database is None else await _history(opened, url, database, plan, retention)
        )
        worker = build_worker(url, plan, history_check)
        if metrics is not None:
            port, close = serve_metrics(metrics, worker.metrics.registry)
            opened.callback(close)
            typer.echo(f"penstock job worker metrics: http://127.0.0.1:{port}/metrics")
        await worker.open()
        typer.echo(f"penstock job worker ready: {worker.name}, {', '.join(worker.types)}")
        await worker.run(stop, grace)


async def _history(
    opened: AsyncExitStack,
    url: str,
    database: str,
    plan: WorkerPlan,
    retention: float | None,
) -> HistoryCheck:
    import penstock_store
    from penstock_jobs.history.recorder import JobRecorder
    from penstock_jobs.history.repository import RETENTION_SECONDS, JobRepository
    from penstock_jobs.queue.requester import job_requester
    from penstock_jobs.schedule.repository import ScheduleRepository
    from penstock_jobs.schedule.scheduler import JobScheduler
    from penstock_jobs.worker.history_check import HistoryCheck

    store = opened.enter_context(penstock_store.open(database, Path()))
    repository = JobRepository(store, retention or RETENTION_SECONDS)
    recorder = JobRecorder(url, repository, plan.retry_seconds)
    await recorder.open()
    opened.push_async_callback(recorder.close)
    requester = job_requester(url, plan.durability, plan.retry_seconds)
    await requester.open()
    opened.push_async_callback(requester.close)
    scheduler = JobScheduler(requester, repository, ScheduleRepository(store, repository))
    await scheduler.open()
    opened.push_async_callback(scheduler.close)
    return HistoryCheck(repository)


def script_command(text: str, shell: str) -> tuple[str, ...]:
    """The words of a command. It runs in the folders of jobs, so a local path becomes absolute."""
    words = shlex.split(text)
    if words and "/" in words[0] and not shell:
        words[0] = str(Path(words[0]).absolute())
    return tuple(words)
