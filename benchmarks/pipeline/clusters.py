"""The same backlog with executors in processes of their own: what distribution costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark
from rich.console import Console

from benchmarks.errors import PeerFailed
from benchmarks.peers import free_port
from benchmarks.pipeline.catchup import CaughtUp, catch_up
from penstock_spark.session import flow_session

LOCAL_CLUSTER: Final = "local-cluster[2,1,1024]"
_START_SECONDS: Final = 60.0


def compare(reports: int, sensors: int, most: int) -> list[CaughtUp]:
    """On threads, on `local-cluster`, and on a standalone master with two workers."""
    found = []
    for name in ("local[2]", LOCAL_CLUSTER, "standalone"):
        with ExitStack() as stack:
            master = stack.enter_context(_standalone()) if name == "standalone" else name
            spark = stack.enter_context(flow_session("benchmark", master))
            catch_up(spark, min(reports, 100_000), sensors, most)  # warms up
            found.append(catch_up(spark, reports, sensors, most))
            Console(stderr=True).print(str(found[-1]), highlight=False)
    return found


@contextmanager
def _standalone() -> Iterator[str]:
    """The URL of a master with two workers of one core each, on loopback."""
    port, page = free_port(), free_port()
    address = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(_process("master.Master", *address))
        for _ in range(2):
            size = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1")
            stack.enter_context(_process("worker.Worker", *size, "--webui-port", "0", url))
        _await_workers(f"http://127.0.0.1:{page}/json/", 2)
        yield url


@contextmanager
def _process(name: str, *arguments: str) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _await_workers(url: str, count: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.read().count(b'"ALIVE"') > count:  # the master's own state, too
                    return
        except OSError:
            pass
        time.sleep(0.3)
    raise PeerFailed("Spark's master has no workers")
