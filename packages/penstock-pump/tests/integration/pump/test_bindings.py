"""A configuration whose subtopics were edited: what it asks for no more does not come any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.client.amqp091.connection import connect
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_pump.components import post, subscribe
from penstock_pump.config.settings import PumpSettings
from penstock_pump.flow.subscription import BindingFile, unbind
from tests.integration.pump.running import running, settings, until
from tests.peers import Broker, free_port


@pytest.fixture
def announce(broker: Broker, name: str, tmp_path: Path) -> Any:
    async def announce(folder: str) -> None:
        path = tmp_path / "there" / folder / "f"
        path.parent.mkdir(parents=True)
        path.write_text(folder)
        given = {"path": [path], "post_exchange": f"x{name}", "post_base_url": "file:/"}
        await post(settings("post", broker.url, tmp_path / "p", post_base_dir="/", **given))

    return announce


def subscription(broker: Broker, name: str, place: Path, *subtopics: str) -> PumpSettings:
    """To folders of what `announce` announces."""
    above = str(place / "there").strip("/").replace("/", ".")
    return settings(
        *("subscribe", broker.url, place / "s"),
        exchange=f"x{name}",
        subtopic=[f"{above}.{each}" for each in subtopics],
        directory=str(place / "here"),
        accept_unmatched=True,
        mirror=True,
        report_back=False,
    )


def arrived(place: Path) -> set[str]:
    return {path.read_text() for path in (place / "here").rglob("f")}


async def test_a_subtopic_that_was_taken_out_is_unbound(
    broker: Broker, name: str, tmp_path: Path, announce: Any
) -> None:
    async with running(subscribe, subscription(broker, name, tmp_path, "a.#", "b.#")):
        pass
    async with running(subscribe, subscription(broker, name, tmp_path, "b.#")) as control:
        await announce("a")
        await announce("b")
        await until(lambda: bool(arrived(tmp_path)))

    assert arrived(tmp_path) == {"b"}
    assert control.counters.received == 1


async def test_what_others_have_bound_to_the_queue_stays(
    broker: Broker, name: str, tmp_path: Path, announce: Any
) -> None:
    asked = subscription(broker, name, tmp_path, "a.#", "b.#")
    async with running(subscribe, asked):
        queue = next((tmp_path / "s").glob("*.qname")).read_text().strip()
        connection = await connect(parse_amqp_url(broker.url), "test")
        channel = await connection.channel()
        await channel.bind(queue, f"x{name}", asked.topic_prefix[0] + ".#.c")
        await connection.close()
    async with running(subscribe, subscription(broker, name, tmp_path, "b.#")):
        await announce("a")
        await announce("c")
        await until(lambda: bool(arrived(tmp_path)))

    assert arrived(tmp_path) == {"c"}


async def test_of_an_exchange_that_is_gone_there_is_nothing_to_unbind(
    broker: Broker, name: str
) -> None:
    connection = await connect(parse_amqp_url(broker.url), "test")
    channel = await connection.channel()
    await channel.declare_queue(f"q{name}")
    await channel.declare_exchange(f"x{name}", "topic")
    await channel.bind(f"q{name}", f"x{name}", "a.#")

    former = {(f"x{name}", "a.#"), (f"gone{name}", "b.#")}

    assert await unbind(broker.url, f"q{name}", former) == set()
    await channel.delete_queue(f"q{name}")
    await connection.close()


async def test_a_broker_that_is_away_is_asked_another_time() -> None:
    former = {("x", "a.#")}
    assert await unbind(f"amqp://127.0.0.1:{free_port()}/", "q", former) == former


def test_what_was_bound_to_another_queue_is_not_this_ones(tmp_path: Path) -> None:
    file = BindingFile(tmp_path / "b", "amqp://me@h/", "q")
    assert file.read() == set()
    file.write({("x", "a.#")})
    assert file.read() == {("x", "a.#")}
    assert BindingFile(tmp_path / "b", "amqp://me@h/", "another").read() == set()
    assert BindingFile(tmp_path / "b", "amqp://me@other/", "q").read() == set()
    (tmp_path / "b").write_text("no JSON")
    assert file.read() == set()
