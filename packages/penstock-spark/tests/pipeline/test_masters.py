"""Spark in several processes: executors apart from the driver, and a client apart from both."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.peers import Broker, Process
from tests.pipeline.given import channel, numbered, stream, taken
from tests.pipeline.processes import until

pytestmark = pytest.mark.usefixtures("java")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "remote"])
def test_nothing_depends_on_one_process(
    broker: Broker, tmp_path: Path, name: str, master: str
) -> None:
    if master == "remote":
        pytest.importorskip("grpc", reason="Spark Connect is not installed")
    stream(broker.url, f"source-{name}", 400)
    with channel(broker.url) as opened:
        opened.queue_declare(name, durable=True)
    arguments = [str(tmp_path), master, broker.url, f"source-{name}", name]
    program = [sys.executable, "-m", "tests.pipeline.elsewhere", *arguments]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}

    process = Process(program, tmp_path / "log", environment)
    try:
        until(process, lambda output: "\ndone" in output)
        assert "\ncount 400" in process.output()
        assert "\nend 400 lag 0" in process.output()
    finally:
        process.end_group(signal.SIGTERM)

    assert sorted(body for _, _, body in taken(broker.url, name)) == sorted(numbered(400))
