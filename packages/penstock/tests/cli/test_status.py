"""`penstock broker status`."""

from __future__ import annotations

import json

import pika
from typer.testing import CliRunner

from penstock.cli import app
from tests.fixtures import NewPenstock
from tests.peers import Penstock, free_port


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["broker", "status", *words], env={"COLUMNS": "120"})
    return done.exit_code, done.stdout, done.stderr


def test_it_shows_the_node_the_fullest_queues_and_who_is_connected(
    new_penstock: NewPenstock, name: str
) -> None:
    penstock = new_penstock()  # others may have left fuller queues in the one that is shared
    connection = pika.BlockingConnection(pika.URLParameters(penstock.url))
    channel = connection.channel()
    channel.queue_declare(name)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"")
    status, shown, _ = run("--url", penstock.http_url)
    connection.close()

    assert status == 0
    assert f"127.0.0.1:{penstock.port}" in shown
    assert name in shown
    assert "AMQP 0-9-1" in shown
    assert "alarms     none" in shown


def test_programs_get_json(penstock: Penstock) -> None:
    status, shown, _ = run("--url", penstock.http_url, "--json")

    assert status == 0
    assert json.loads(shown).keys() == {"overview", "alarms", "queues", "connections"}


def test_it_says_what_to_do_when_nothing_answers() -> None:
    status, _, said = run("--url", f"http://127.0.0.1:{free_port()}")

    assert status != 0
    assert "is a broker running there?" in said


def test_it_says_so_when_it_is_not_let_in(penstock: Penstock) -> None:
    status, _, said = run("--url", penstock.http_url, "--user", "guest", "--password", "wrong")

    assert status != 0
    assert "guest" in said


def test_a_password_is_for_whoever_asks(penstock: Penstock) -> None:
    status, _, said = run("--url", penstock.http_url, "--password", "wrong")
    assert status == 4
    assert "Login failed (401); as user 'guest'" in said

    somebody = penstock.http_url.replace("://", "://somebody:guest@")
    status, _, said = run("--url", somebody, "--password", "wrong")
    assert status == 4
    assert "as user 'somebody'" in said

    assert run("--url", somebody, "--user", "guest")[0] == 0
    assert run("--url", somebody, "--user", "guest", "--password", "guest")[0] == 0
