"""A worker from a plan: which types it does, by what, and where the broker is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_jobs.executors.commands import CommandExecutor
from penstock_jobs.executors.executor import FakeExecutor, JobExecutor, TaskExecutor
from penstock_jobs.executors.functions import FunctionExecutor
from penstock_jobs.executors.ichnaea_script import IchnaeaScriptExecutor
from penstock_jobs.executors.source_tracker import SourceTrackingExecutor
from penstock_jobs.pool.pool import ProcessPool
from penstock_jobs.queue.amqp091 import Amqp091WorkerConnection
from penstock_jobs.queue.requester import is_amqp10_url
from penstock_jobs.queue.topology import ICHNAEA, TYPES, Durability
from penstock_jobs.queue.worker_connection import WorkerConnection
from penstock_jobs.shells.local import LocalShell
from penstock_jobs.shells.shell import Shell
from penstock_jobs.worker.history_check import HistoryCheck
from penstock_jobs.worker.worker import Worker, WorkerSettings

#: For `Plan.spark`: models are built without it.
NO_SPARK: Final = ""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    types: tuple[str, ...] = ()  #: none is all that there is something for
    slots: int = 1
    script: tuple[str, ...] = ()  #: does the Ichnaea types instead of what is built in
    shell: str = ""  #: where scripts and commands run: here, or ssh://user@host
    keys: tuple[Path, ...] = ()
    known_hosts: Path | None = None
    functions: tuple[str, ...] = ()  #: modules and functions that may be called
    programs: tuple[str, ...] = ()  #: that may be run as commands
    spark: str = NO_SPARK  #: a master, such as local[*]
    methods: tuple[str, ...] = ()  #: classifiers to try; none is all
    recycle: int | None = None  #: pieces of work, after which a process is replaced
    durability: Durability = Durability.DURABLE
    request_queue: str | None = None
    response_queues: tuple[str, ...] = ()  #: to be bound to the responses, beside the usual ones
    retry_seconds: float = 0.0
    settings: WorkerSettings = field(default_factory=WorkerSettings)


def build_worker(url: str, plan: WorkerPlan, history_check: HistoryCheck | None = None) -> Worker:
    """Nothing is connected or started before it is opened."""
    kinds = _executors(plan)
    there = [name for kind in kinds for name in kind.types]
    missing = [name for name in plan.types if name not in there]
    if missing:
        raise ConfigurationError(f"{', '.join(missing)}: {_advice(missing[0])}")
    types = plan.types or tuple(there)
    if plan.request_queue is not None and len(types) > 1:
        raise ConfigurationError("a queue of requests is for one type of work: name it")
    chosen = [kind for kind in kinds if set(kind.types) & set(types)]
    return Worker(_connection(url, plan, types), chosen, plan.settings, history_check, types)


def _connection(url: str, plan: WorkerPlan, types: tuple[str, ...]) -> WorkerConnection:
    if is_amqp10_url(url):
        from penstock_jobs.queue.amqp10 import Amqp10WorkerConnection

        return Amqp10WorkerConnection(
            url, types, plan.slots, queue=plan.request_queue, retry_seconds=plan.retry_seconds
        )
    return Amqp091WorkerConnection(
        parse_amqp_url(url),
        types,
        plan.slots,
        queue=plan.request_queue,
        responses=(plan.settings.response_exchange, plan.response_queues),
        durability=plan.durability,
        retry_seconds=plan.retry_seconds,
    )


def _executors(plan: WorkerPlan) -> list[JobExecutor]:
    pool = ProcessPool(plan.slots, most=plan.recycle)
    on_spark = ProcessPool(1, master=plan.spark) if plan.spark else None
    kinds: list[JobExecutor] = []
    if plan.script:
        kinds.append(TaskExecutor(IchnaeaScriptExecutor(partial(_shell, plan), plan.script)))
    else:
        kinds += (
            TaskExecutor(FakeExecutor()),
            SourceTrackingExecutor(pool, on_spark, plan.methods),
        )
    if plan.functions:
        kinds.append(FunctionExecutor(pool, plan.functions))
        if on_spark is not None:
            kinds.append(FunctionExecutor(on_spark, plan.functions, spark=True))
    if plan.programs:
        kinds.append(TaskExecutor(CommandExecutor(partial(_shell, plan), plan.programs)))
    return kinds


def _shell(plan: WorkerPlan) -> Shell:
    if not plan.shell:
        return LocalShell()
    from penstock_jobs.shells.ssh import SshShell

    return SshShell(plan.shell, keys=plan.keys, known_hosts=plan.known_hosts)


def _advice(kind: str) -> str:
    if kind == "call":
        return "say which functions may be called, with --allow"
    if kind == "command":
        return "say which programs may be run, with --program"
    if kind == "spark":
        return "say where Spark is, with --spark, and which functions may be called, with --allow"
    return f"there is no such type; there are {', '.join(_sorted(TYPES))}"


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name not in ICHNAEA, name))
