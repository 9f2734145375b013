"""amqp-tools: the command-line clients written in C, on librabbitmq."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pika
import pytest

from tests.fixtures import needed
from tests.peers import Broker, find_program

Run = Callable[..., str]


@pytest.fixture
def run(broker: Broker) -> Run:
    def run_one(program: str, *arguments: str, **options: Any) -> str:
        path = needed(find_program, program, "amqp-tools")
        done = subprocess.run(
            [path, "--url", broker.url, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            **options,
        )
        if done.returncode:
            raise AssertionError((program, done.returncode, done.stdout, done.stderr))
        return str(done.stdout)

    return run_one


@pytest.fixture
def declared(run: Run, name: str) -> Any:
    assert run("amqp-declare-queue", "--queue", name).strip() == name
    yield name
    run("amqp-delete-queue", "--queue", name)


def test_publish_and_get(run: Run, declared: str) -> None:
    run("amqp-publish", "--routing-key", declared, "--body", "hello")

    assert run("amqp-get", "--queue", declared) == "hello"


def test_getting_from_an_empty_queue_fails_with_two(run: Run, declared: str) -> None:
    with pytest.raises(AssertionError) as caught:
        run("amqp-get", "--queue", declared)

    assert caught.value.args[0][1] == 2


def test_properties_are_set(run: Run, declared: str, broker: Broker) -> None:
    run(
        "amqp-publish",
        *("--routing-key", declared, "--body", "x", "--persistent"),
        *("--content-type", "text/plain", "--reply-to", "me", "--header", "a: b"),
    )

    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    _, properties, _ = connection.channel().basic_get(declared, auto_ack=True)
    connection.close()
    assert (properties.delivery_mode, properties.content_type) == (2, "text/plain")
    assert (properties.reply_to, properties.headers) == ("me", {"a": "b"})


def test_every_line_is_a_message_and_a_command_takes_each(run: Run, declared: str) -> None:
    run("amqp-publish", "--routing-key", declared, "--line-buffered", input="one\ntwo\nthree\n")

    output = run("amqp-consume", "--queue", declared, "--count", "3", "sed", "s/^/got /")

    # The last line of a file keeps no newline as a message.
    assert [line for line in output.replace("got", "\ngot").split("\n") if line] == [
        "got one",
        "got two",
        "got three",
    ]


def test_a_command_that_fails_puts_the_message_back(run: Run, declared: str) -> None:
    run("amqp-publish", "--routing-key", declared, "--body", "job")

    fails = "cat > /dev/null; exit 1"  # having read it: else the tool dies of a broken pipe
    run("amqp-consume", "--queue", declared, "--count", "1", "--", "sh", "-c", fails)

    assert run("amqp-consume", "--queue", declared, "--count", "1", "cat") == "job"


def test_consuming_from_an_exchange_binds_a_queue_of_its_own(
    run: Run, broker: Broker, name: str
) -> None:
    consumer = subprocess.Popen(
        [
            find_program("amqp-consume", "amqp-tools"),
            *("--url", broker.url, "--exchange", "amq.topic", "--routing-key", f"{name}.#"),
            *("--no-ack", "--count", "1", "cat"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert consumer.stderr is not None
    assert consumer.stderr.readline().startswith("Server provided queue name: amq.gen-")
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    delivered = False
    while not delivered:  # its binding comes after the name
        try:
            channel.basic_publish("amq.topic", f"{name}.key", b"hello", mandatory=True)
            delivered = True
        except pika.exceptions.UnroutableError:
            pass
    output, _ = consumer.communicate(timeout=60)
    connection.close()

    assert output == "hello"
