"""`penstock pub` and `penstock sub`, as a shell runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from penstock.client.blocking_client import BlockingFabric, connect
from tests.peers import free_port

PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.fixture
def environment(broker_url: str) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_URL": broker_url, "NO_COLOR": "1"}


def run(
    environment: dict[str, str], *arguments: str, stdin: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PENSTOCK, *arguments],
        env=environment,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_what_is_pushed_is_pulled(environment: dict[str, str], name: str) -> None:
    assert run(environment, "pub", "--push", name, "one", "two").returncode == 0
    pulled = run(environment, "sub", "--pull", name, "--text", "--count", "2")
    assert pulled.stdout == "one\ntwo\n"


def test_lines_of_standard_input_are_messages(environment: dict[str, str], name: str) -> None:
    run(environment, "pub", "--stream", name, stdin="first line\nsecond line\n")
    replayed = run(environment, "sub", "--stream", name, "-n", "2")
    assert replayed.stdout == f"{name} 0 first line\n{name} 1 second line\n"


def test_all_about_a_message_is_one_json_object(environment: dict[str, str], name: str) -> None:
    run(environment, "pub", "--push", name, "--json", '{"id": 7}', "-H", "unit=K", "-H", "n=3")
    told = json.loads(run(environment, "sub", "--pull", name, "-n", "1", "--json").stdout)
    assert told["address"] == name
    assert told["body"] == {"id": 7}
    assert told["headers"] == {"unit": "K", "n": 3}
    assert told["content_type"] == "application/json"


def test_bytes_go_and_come_in_hex(environment: dict[str, str], name: str) -> None:
    run(environment, "pub", "--push", name, "--hex", "00ff")
    assert run(environment, "sub", "--pull", name, "-n", "1", "--hex").stdout == "00ff\n"


def test_lines_that_are_no_text_go_as_the_bytes_they_are(
    environment: dict[str, str], broker_url: str, name: str
) -> None:
    subprocess.run(
        [*PENSTOCK, "pub", "--push", name],
        env=environment,
        input=b"caf\xe9\ncaf\xc3\xa9\n",
        timeout=60,
        check=True,
    )
    with connect(broker_url) as fabric, fabric.pull(name) as items:
        assert [items.receive().body for _ in range(2)] == [b"caf\xe9", b"caf\xc3\xa9"]


def test_a_stream_is_replayed_from_an_offset(environment: dict[str, str], name: str) -> None:
    run(environment, "pub", "--stream", name, "a", "b", "c")
    replayed = run(environment, "sub", "--stream", name, "--start", "2", "-n", "1", "--text")
    assert replayed.stdout == "c\n"


def test_count_repeats(environment: dict[str, str], broker_url: str, name: str) -> None:
    run(environment, "pub", "--push", name, "x", "y", "--count", "3", "--rate", "1000")
    with connect(broker_url) as fabric, fabric.pull(name) as items:
        assert "".join(items.receive().text for _ in range(6)) == "xyxyxy"


def test_a_request_prints_the_answer(
    environment: dict[str, str], broker_url: str, name: str
) -> None:
    with connect(broker_url) as fabric, fabric.serve(name, lambda request: request.text.upper()):
        asked = run(environment, "pub", "--request", name, "hello")
    assert (asked.returncode, asked.stdout) == (0, "HELLO\n")


def test_nobody_serving_is_exit_status_3(environment: dict[str, str], name: str) -> None:
    asked = run(environment, "pub", "--request", name, "hello")
    assert (asked.returncode, asked.stdout) == (3, "")
    assert f"no program serves '{name}'" in asked.stderr


def test_sub_serves(environment: dict[str, str], broker_url: str, name: str) -> None:
    with connect(broker_url) as fabric, watching(environment, "--reply", name, "-n", "1") as sub:
        assert ask_until_served(fabric, name) == "hello"
        assert sub.communicate(timeout=30)[0] == f"{name} hello\n"


def test_ctrl_c_ends_a_subscription_well(
    environment: dict[str, str], broker_url: str, name: str
) -> None:
    with connect(broker_url) as fabric, watching(environment, f"{name}.#", "--text") as sub:
        assert sub.stdout is not None
        publish_until_seen(fabric, f"{name}.x", sub)
        sub.send_signal(signal.SIGINT)
        _, errors = sub.communicate(timeout=30)
        assert (sub.returncode, errors) == (0, "")


def test_no_broker_is_exit_status_6_and_says_where() -> None:
    port = free_port()
    sent = run({**os.environ, "PENSTOCK_URL": f"amqp://127.0.0.1:{port}"}, "pub", "x", "y")
    assert sent.returncode == 6
    assert f"no broker at 127.0.0.1:{port}: connection refused" in sent.stderr
    assert "penstock up" in sent.stderr
    assert "Traceback" not in sent.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "x", "y", "--push", "--stream"),
        ("pub", "x", "{", "--json"),
        ("pub", "x", "y", "--header", "nothing"),
        ("pub", "x", "y", "--url", "gopher://localhost"),
        ("sub", "x", "--stream", "--start", "yesterday"),
        ("sub", "x", "y", "--pull"),
    ],
)
def test_a_flag_that_cannot_be_used_is_exit_status_2(arguments: tuple[str, ...]) -> None:
    said = run({**os.environ}, *arguments)
    assert said.returncode == 2
    assert "Traceback" not in said.stderr


def watching(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PENSTOCK, "sub", *arguments],
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ask_until_served(fabric: BlockingFabric, service: str) -> str:
    from penstock.client import NoService

    while True:
        try:
            return fabric.request(service, "hello").text
        except NoService:
            continue  # not there yet


def publish_until_seen(fabric: BlockingFabric, address: str, sub: subprocess.Popen[str]) -> None:
    """A copy goes only to those subscribed already: publish until one is seen."""
    import threading

    assert sub.stdout is not None
    seen = threading.Event()
    output = sub.stdout

    def watch() -> None:
        output.readline()
        seen.set()

    threading.Thread(target=watch, daemon=True).start()
    while not seen.wait(0.02):
        fabric.publish(address, "hello")
