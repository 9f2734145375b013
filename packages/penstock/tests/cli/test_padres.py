"""`penstock pub`, `sub`, `adv`, `client` and `console` over PADRES, as a shell runs them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.padres.blocking_client import BlockingPadresClient
from tests.cli.command import PENSTOCK, SECONDS, environment, run
from tests.fixtures import running
from tests.padres import PadresBroker


@pytest.fixture(scope="module")
def padres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PadresBroker]:
    with running(PadresBroker(tmp_path_factory.mktemp("padres"))) as broker:
        yield broker


def lines(text: str) -> list[str]:
    return text.splitlines()


# Publishing and subscribing.


def test_a_named_subscription_keeps_what_comes(padres: PadresBroker) -> None:
    with BlockingPadresClient(padres.url, id="keeper", lasting=True) as client:
        client.subscribe("[class,eq,stock],[price,<,50]")
    published = run(
        *("pub", padres.url, "[class,stock],[price,45],[symbol,'IBM']"),
        *("[class,stock],[price,55]", "[class,stock],[price,1.5]"),
    )
    assert (published.returncode, published.stderr) == (0, "")

    seen = run(
        *("sub", padres.url, "[class,eq,stock],[price,<,50]"),
        *("--name", "keeper", "--count", "2", "--json"),
    )
    found = [json.loads(line) for line in lines(seen.stdout)]
    assert [one["attributes"] for one in found] == [{"price": 45, "symbol": "IBM"}, {"price": 1.5}]
    assert {one["class"] for one in found} == {"stock"}


def test_lines_of_standard_input_are_publications(padres: PadresBroker) -> None:
    with BlockingPadresClient(padres.url) as client:
        client.subscribe("[class,eq,lines]")
        assert (
            run("pub", padres.url, "-", stdin="[class,lines],[n,1]\n[class,lines]\n").returncode
            == 0
        )
        assert client.receive(timeout=SECONDS)["n"] == 1
        assert client.receive(timeout=SECONDS).attributes == {}


def test_what_conforms_is_published_and_what_does_not_is_named(padres: PadresBroker) -> None:
    with BlockingPadresClient(padres.url) as client:
        client.subscribe("[class,eq,shares]")
        said = run(
            *("adv", padres.url, "[class,eq,shares],[price,>,0]"),
            stdin="[class,shares],[price,-7]\n\n[class,shares],[price,7]\n",
        )
        assert client.receive(timeout=SECONDS)["price"] == 7
    assert said.returncode == 0
    assert "[price,-7] conforms to no advertisement" in said.stderr
    assert said.stdout.startswith("Broker1-M")


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["pub", "{url}", "[class,stock],[price,"], 5, "column 22: expected"),
        (["sub", "{url}", "[class,stock]"], 5, "column 8: expected 'eq'"),
        (["pub", "{url}", "--push", "[class,stock]"], 2, "use amqp:// for queues"),
        (["sub", "{url}", "--stream", "x"], 2, "replay the stream 'publications'"),
        (["pub", "padres://127.0.0.1:1/B1", "[class,a]"], 6, "no broker at 127.0.0.1:1"),
        (["adv", "amqp://127.0.0.1", "[class,eq,a]"], 2, "padres://host:port/BrokerID"),
        (["sub", "padres://127.0.0.1:port/B1", "[class,eq,a]"], 2, "port"),
    ],
)
def test_mistakes_are_said_in_a_line(
    padres: PadresBroker, arguments: list[str], status: int, why: str
) -> None:
    said = run(*(word.format(url=padres.url) for word in arguments))

    assert said.returncode == status
    assert why in said.stderr
    assert "Traceback" not in said.stderr


# The client.


def test_a_client_takes_commands(padres: PadresBroker, tmp_path: Path) -> None:
    (tmp_path / "batch").write_text("# a comment\nadv [class,eq,batched]\ns [class,eq,batched]\n")
    commands = f"batch {tmp_path}/batch\np [class,batched] @Broker1\ninfo\nprintsubs\nbrokerinfo\n"
    said = run("client", padres.url, "--id", "talker", stdin=commands)

    assert said.returncode == 0
    answers = lines(said.stdout)
    assert "<- [class,batched]" in answers
    assert "id talker; brokers Broker1; 1 advertised; 1 subscribed" in answers
    assert any(line.endswith("Broker1  [class,eq,batched]") for line in answers)
    assert any("connected  Penstock" in line for line in answers)


def test_a_client_says_what_is_wrong_and_goes_on(padres: PadresBroker) -> None:
    said = run(
        "client",
        stdin=f"p [class,x]\nsetid later\nc {padres.url}\ninfo\ns [class,x\nfly\nunsub B1-M9\n"
        "dc @Broker9\nexit\nnever\n",
    )

    assert said.returncode == 0
    assert lines(said.stderr) == [
        "the client is not connected to a broker",
        "column 8: expected 'eq', found 'x'",
        "unknown command 'fly'; `help` lists the commands",
        "the client has no registration 'B1-M9'",
        "no connection to Broker9; the brokers are Broker1",
    ]
    assert "id later; brokers Broker1; 0 advertised; 0 subscribed" in lines(said.stdout)


def test_commands_of_ones_own_can_be_plugged_in(padres: PadresBroker, tmp_path: Path) -> None:
    (tmp_path / "greeting.py").write_text(
        "async def hello(client, argument):\n"
        "    return f'{client.id} says hello to {argument}'\n"
        "def register(commands):\n"
        "    commands.add('hello', hello, 'hello NAME: greet')\n"
    )
    said = run(
        *("client", padres.url, "--id", "polite", "--commands", "greeting"),
        stdin="hello world\nhelp\n",
        cwd=tmp_path,
    )

    assert lines(said.stdout)[0] == "polite says hello to world"
    assert "hello NAME: greet" in said.stdout


# The console.


def test_the_console_shows_and_injects(padres: PadresBroker) -> None:
    commands = (
        "adv [class,eq,console],[n,>,0]\nsub [class,eq,console]\npub [class,console],[n,1]\n"
        "received\nprintsubs\nprintadvs nohead classonly\ninfo\n"
    )
    said = run("console", padres.server.http_url, stdin=commands)

    assert said.returncode == 0, said.stderr
    answers = lines(said.stdout)
    assert any(line.endswith("Broker1-console  [class,console],[n,1]") for line in answers)
    assert any(line.endswith("Broker1-console  [class,eq,console]") for line in answers)
    assert "console" in answers
    assert any(line.split() == ["broker", "Broker1"] for line in answers)


def test_the_console_names_mistakes(padres: PadresBroker) -> None:
    said = run("console", padres.server.http_url, "--run", "sub [class,console]")
    assert said.returncode == 5
    assert "column 8: expected 'eq'" in said.stderr
    said = run("console", padres.server.http_url, "--run", "printsubs everything")
    assert "nohead or classonly" in said.stderr
    said = run("console", padres.server.http_url.replace("//", "//guest:wrong@"), "--run", "info")
    assert said.returncode == 4


def test_watching_ends_with_the_reader(padres: PadresBroker) -> None:
    watching = subprocess.Popen(
        [*PENSTOCK, "sub", padres.url, "[class,eq,tick]", "--text"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        with BlockingPadresClient(padres.url) as client:
            client.advertise("[class,eq,tick]")
            published = False
            while not published:  # until it has subscribed
                listed = run("console", padres.server.http_url, "--run", "printsubs nohead")
                published = "[class,eq,tick]" in listed.stdout
            client.publish("[class,tick]", b"tock")
        assert watching.stdout is not None
        assert watching.stdout.readline() == "[class,tick] tock\n"
    finally:
        watching.terminate()
        watching.wait(SECONDS)
        for pipe in (watching.stdout, watching.stderr):
            if pipe is not None:
                pipe.close()


# Over MQTT.


def test_publications_by_content_cross_from_mqtt(padres: PadresBroker) -> None:
    url = padres.server.mqtt_url
    watching = subprocess.Popen(
        [*PENSTOCK, "sub", url, "$content/[class,eq,crossing],[price,<,50]", "--count", "1"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        listed = ""
        while "[class,eq,crossing]" not in listed:  # until it has subscribed
            listed = run("console", padres.server.http_url, "--run", "printsubs nohead").stdout
        for price in ("55", "45"):
            run("pub", url, "$content/crossing", "payload", "-H", f"price={price}")
        said, _ = watching.communicate(timeout=SECONDS)
    finally:
        watching.kill()
    assert said == "$content/crossing q1 price=45 class=crossing payload\n"


def test_a_mistake_over_mqtt_has_its_place(padres: PadresBroker) -> None:
    said = run("sub", padres.server.mqtt_url, "$content/[class,eq,stock],[price,<,x]")

    assert said.returncode == 5
    assert "column 27: expected a number after <" in said.stderr
