"""Work in a process of its own, with its own Spark session.

Nightly work loads libraries, plans large queries and caches tables: memory that a long-running
driver, its Java and its workers would keep. With a local master such work runs in a new process,
one at a time, on half of the cores, and its memory is returned when it ends. On a cluster it uses
the given session.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from penstock.core.logs import configure_logs, log_settings
from penstock_spark.session import flow_session

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from penstock.core.config import LogSettings

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")

#: The priority, so that live batches come first.
NICENESS: Final = 10
#: Two sessions more would need their memory at the same time.
_one_at_a_time: Final = threading.Lock()
#: Settings that Spark makes for each session.
_OF_SESSION: Final = ("spark.app.", "spark.driver.port", "spark.executor.id")


class OwnSessionFailed(RuntimeError):
    """The process ended without a result."""


def in_own_session(
    spark: SparkSession, work: Callable[[SparkSession, *Arguments], T], *arguments: *Arguments
) -> T:
    """Call a function of a module with a session; its arguments and result are pickled."""
    context = getattr(spark, "_sc", None)  # None in Spark Connect
    if context is None or not context.master.startswith("local"):
        return work(spark, *arguments)
    settings = {
        name: value
        for name, value in context.getConf().getAll()
        if not name.startswith(_OF_SESSION)
    }
    spawn = get_context("spawn")  # Java and threads are not forked
    with _one_at_a_time:
        receiver, sender = spawn.Pipe(duplex=False)
        process = spawn.Process(
            target=_run,
            args=(sender, log_settings(), _half_of(context), settings, work, arguments),
            daemon=True,  # ends with this process
        )
        process.start()
        sender.close()
        with receiver:
            try:
                result, error = receiver.recv()
            except EOFError:
                result, error = None, "it ended"
        process.join()
    if error is not None:
        raise OwnSessionFailed(f"{error}, exit status {process.exitcode}")
    found: T = result
    return found


def _half_of(context: SparkContext) -> str:
    """A master with fewer tasks at a time: each has a worker with its memory."""
    return f"local[{max(1, context.defaultParallelism // 2)}]"


def _run(
    sender: Connection,
    logs: LogSettings,
    master: str,
    settings: dict[str, str],
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the parent ends this process
    os.nice(NICENESS)
    configure_logs(logs)
    try:
        with flow_session(work.__name__.strip("_"), master, None, settings) as spark:
            result = work(spark, *arguments)
    except Exception as error:
        sender.send((None, f"{type(error).__name__}: {error}"))
    else:
        sender.send((result, None))
