"""A worker from a plan: its types, the executors for them, and its connection to the broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.errors import ConfigurationError
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_jobs.executors.commands import CommandExecutor
from penstock_jobs.executors.coroutines import CoroutineExecutor
from penstock_jobs.executors.executor import FakeExecutor, JobExecutor, TaskExecutor
from penstock_jobs.executors.functions import FunctionExecutor
from penstock_jobs.executors.ichnaea_script import IchnaeaScriptExecutor
from penstock_jobs.executors.source_tracker import SourceTrackingExecutor
from penstock_jobs.pool.pool import ProcessPool
from penstock_jobs.queue.amqp091 import Amqp091WorkerConnection
from penstock_jobs.queue.topology import TYPES, Durability
from penstock_jobs.queue.worker_connection import WorkerConnection
from penstock_jobs.shells.local import LocalShell
from penstock_jobs.shells.shell import CommandShell
from penstock_jobs.worker.slots import first_prefetch
from penstock_jobs.worker.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    from penstock_jobs.worker.history_check import HistoryCheck

_ADVICE = {
    "call": "name the functions that may be called with --allow",
    "command": "name the programs that may be run with --program",
    "spark": "name the Spark master with --spark and the functions with --allow",
}


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    types: tuple[str, ...] = ()  #: empty: every type that has an executor
    slots: int = 1
    script: tuple[str, ...] = ()  #: runs the Ichnaea types instead of the built-in executors
    shell: str = ""  #: where scripts and commands run: empty is local, or ssh://user@host
    keys: tuple[Path, ...] = ()
    known_hosts: Path | None = None
    functions: tuple[str, ...] = ()  #: modules and functions that may be called
    coroutines: bool = False  #: functions are coroutine functions, run on the event loop
    programs: tuple[str, ...] = ()  #: programs that may be run
    spark: str = ""  #: a master, such as local[*]; empty: models are built without Spark
    methods: tuple[str, ...] = ()  #: kinds of classifiers; empty: all
    recycle: int | None = None  #: tasks after which a process is replaced
    durability: Durability = Durability.DURABLE
    request_queue: str | None = None
    response_queues: tuple[str, ...] = ()  #: more queues to bind to the response exchange
    retry_seconds: float = 0.0
    settings: WorkerSettings = field(default_factory=WorkerSettings)


def build_worker(url: str, plan: WorkerPlan, history_check: HistoryCheck | None = None) -> Worker:
    """Nothing is connected or started before `Worker.open`."""
    executors = _executors(plan)
    available = [name for executor in executors for name in executor.types]
    missing = [name for name in plan.types if name not in available]
    if missing:
        advice = _ADVICE.get(missing[0], f"unknown type; the types are {', '.join(TYPES)}")
        raise ConfigurationError(f"{', '.join(missing)}: {advice}")
    types = plan.types or tuple(available)
    if plan.request_queue is not None and len(types) > 1:
        raise ConfigurationError("--request-queue serves one type: name it with --type")
    chosen = [executor for executor in executors if set(executor.types) & set(types)]
    return Worker(_connection(url, plan, types), chosen, plan.settings, history_check, types)


def _connection(url: str, plan: WorkerPlan, types: tuple[str, ...]) -> WorkerConnection:
    if protocol_of(url) is BrokerProtocol.AMQP10:
        from penstock_jobs.queue.amqp10 import Amqp10WorkerConnection

        return Amqp10WorkerConnection(
            url,
            types,
            plan.slots,
            queue=plan.request_queue,
            responses=(plan.settings.response_exchange, plan.response_queues),
            durability=plan.durability,
            retry_seconds=plan.retry_seconds,
        )
    return Amqp091WorkerConnection(
        parse_amqp_url(url),
        types,
        first_prefetch(plan.slots),
        queue=plan.request_queue,
        responses=(plan.settings.response_exchange, plan.response_queues),
        durability=plan.durability,
        retry_seconds=plan.retry_seconds,
    )


def _executors(plan: WorkerPlan) -> list[JobExecutor]:
    if plan.coroutines:
        # Only what needs no process: there may be thousands of slots.
        functions = TaskExecutor(CoroutineExecutor(plan.functions))
        return [TaskExecutor(FakeExecutor()), functions]
    pool = ProcessPool(plan.slots, recycle=plan.recycle)
    spark_pool = ProcessPool(1, master=plan.spark) if plan.spark else None
    executors: list[JobExecutor] = []
    if plan.script:
        executors.append(TaskExecutor(IchnaeaScriptExecutor(_shell(plan), plan.script)))
    else:
        executors += (
            TaskExecutor(FakeExecutor()),
            SourceTrackingExecutor(pool, spark_pool, plan.methods),
        )
    if plan.functions:
        executors.append(FunctionExecutor(pool, plan.functions))
        if spark_pool is not None:
            executors.append(FunctionExecutor(spark_pool, plan.functions, spark=True))
    if plan.programs:
        executors.append(TaskExecutor(CommandExecutor(_shell(plan), plan.programs)))
    return executors


def _shell(plan: WorkerPlan) -> CommandShell:
    """Without a grace of its own: the worker's time limits decide when a command is killed."""
    if not plan.shell:
        return LocalShell(grace=None)
    from penstock_jobs.shells.ssh import SshShell

    return SshShell(plan.shell, keys=plan.keys, known_hosts=plan.known_hosts, grace=None)
