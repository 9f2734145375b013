"""The client without `async`, and the commands, over AMQP 1.0."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.client.blocking_client import BlockingFabric, connect


@pytest.fixture
def blocking(url: str) -> Iterator[BlockingFabric]:
    with connect(url) as fabric:
        yield fabric


def test_publish_subscribe(blocking: BlockingFabric, name: str) -> None:
    with blocking.subscribe(f"{name}.*") as prices:
        blocking.publish(f"{name}.oil", {"usd": 61}, headers={"unit": "barrel"})
        message = prices.receive()
        assert (message.json(), message.headers) == ({"usd": 61}, {"unit": "barrel"})


def test_push_pull_and_a_service(blocking: BlockingFabric, name: str) -> None:
    blocking.push(name).post(b"safe").wait()
    with blocking.pull(name) as items:
        assert items.receive().body == b"safe"
    with blocking.serve(f"{name}.up", lambda request: request.body.upper()):
        assert blocking.request(f"{name}.up", b"loud").body == b"LOUD"


def run(url: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        env={**os.environ, "PENSTOCK_URL": url, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_speak_it_by_url(url: str, name: str) -> None:
    run(url, "pub", "--push", name, "one", "two", "-H", "n=3")
    assert run(url, "sub", "--pull", name, "--text", "--count", "2") == "one\ntwo\n"
    run(url, "pub", url, "--stream", name + ".s", "first")
    assert run(url, "sub", "--stream", name + ".s", "-n", "1") == f"{name}.s 0 first\n"
