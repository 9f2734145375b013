"""A worker from a plan: which types it does, by what, and where the broker is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.jobs.pool.pool import Pool
from penstock.jobs.queue.amqp import AmqpCarrier
from penstock.jobs.queue.carrier import Carrier
from penstock.jobs.queue.mailbox import by_amqp10
from penstock.jobs.queue.topology import ICHNAEA, TYPES, Durability
from penstock.jobs.shells.local import LocalShell
from penstock.jobs.shells.shell import Shell
from penstock.jobs.work.calls import Calls
from penstock.jobs.work.commands import CommandWork
from penstock.jobs.work.fake import FakeWork
from penstock.jobs.work.kind import Kind, Tasks
from penstock.jobs.work.tracking import TrackingKind
from penstock.jobs.work.wrapper import WrapperWork
from penstock.jobs.worker.ledger import Ledger
from penstock.jobs.worker.worker import Worker, WorkerSettings
from penstock.wire.amqp091.address import parse_address

#: For `Plan.spark`: models are built without it.
NO_SPARK: Final = ""


@dataclass(frozen=True, slots=True)
class Plan:
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
    patience: float = 0.0
    settings: WorkerSettings = field(default_factory=WorkerSettings)


def assemble(url: str, plan: Plan, ledger: Ledger | None = None) -> Worker:
    """Nothing is connected or started before it is opened."""
    kinds = _kinds(plan)
    there = [name for kind in kinds for name in kind.types]
    missing = [name for name in plan.types if name not in there]
    if missing:
        raise ConfigurationError(f"{', '.join(missing)}: {_advice(missing[0])}")
    types = plan.types or tuple(there)
    if plan.request_queue is not None and len(types) > 1:
        raise ConfigurationError("a queue of requests is for one type of work: name it")
    chosen = [kind for kind in kinds if set(kind.types) & set(types)]
    return Worker(_carrier(url, plan, types), chosen, plan.settings, ledger, types)


def _carrier(url: str, plan: Plan, types: tuple[str, ...]) -> Carrier:
    if by_amqp10(url):
        from penstock.jobs.queue.amqp10 import Amqp10Carrier

        return Amqp10Carrier(
            url, types, plan.slots, queue=plan.request_queue, patience=plan.patience
        )
    return AmqpCarrier(
        parse_address(url),
        types,
        plan.slots,
        queue=plan.request_queue,
        responses=(plan.settings.response_exchange, plan.response_queues),
        durability=plan.durability,
        patience=plan.patience,
    )


def _kinds(plan: Plan) -> list[Kind]:
    pool = Pool(plan.slots, most=plan.recycle)
    on_spark = Pool(1, master=plan.spark) if plan.spark else None
    kinds: list[Kind] = []
    if plan.script:
        kinds.append(Tasks(WrapperWork(partial(_shell, plan), plan.script)))
    else:
        kinds += (Tasks(FakeWork()), TrackingKind(pool, on_spark, plan.methods))
    if plan.functions:
        kinds.append(Calls(pool, plan.functions))
        if on_spark is not None:
            kinds.append(Calls(on_spark, plan.functions, spark=True))
    if plan.programs:
        kinds.append(Tasks(CommandWork(partial(_shell, plan), plan.programs)))
    return kinds


def _shell(plan: Plan) -> Shell:
    if not plan.shell:
        return LocalShell()
    from penstock.jobs.shells.ssh import SshShell

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
