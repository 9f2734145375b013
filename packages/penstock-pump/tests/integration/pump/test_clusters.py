"""Posts and reports between clusters: a broker of AMQP here, one of MQTT there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.client import connect
from penstock_pump.components import post, report, shovel, subscribe
from penstock_pump.components.factory import subscriptions
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.plugins import Plugin
from penstock_pump.posts.checksums import Checksum
from penstock_pump.posts.formats import read_post
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PostReport
from tests.integration.pump.running import running, settings, until
from tests.peers import MqttBroker, Penstock
from tests.pump.servers import serving


@pytest.mark.timeout(120)
async def test_posts_go_to_their_clusters_and_reports_return_to_theirs(
    penstock: Penstock, mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    for each in ("for_b", "for_c", "for_all"):
        (there / each).write_text(each)
    a, b, x = penstock.url, mqtt_broker.mqtt_url, f"x{name}"
    told: list[PostReport] = []
    with serving(there) as server:
        posts = [
            settings(
                "post", a, tmp_path / f"p{to}", post_exchange=x, post_base_url=server.url,
                post_base_dir=there, path=[there / file], cluster="A", to_clusters=to,
            )
            for file, to in (("for_b", "D, B"), ("for_c", "C"), ("for_all", "ALL"))
        ]  # fmt: skip
        across = settings(
            "shovel", a, tmp_path / "s1", exchange=x, post_broker=b, post_exchange=x,
            to_clusters="B", queue=f"q_{name}_1",
        )  # fmt: skip
        fetches = settings(
            "subscribe", b, tmp_path / "f", name=name, exchange=x, directory=str(here), cluster="B",
            report_exchange=f"{x}r",
        )  # fmt: skip
        back = settings(
            "shovel", b, tmp_path / "s2", name=f"{name}b", exchange=f"{x}r",
            topic_prefix=["v02.report"],
            post_broker=a, post_exchange=f"{x}reports", to_clusters="A",
        )  # fmt: skip
        elsewhere = settings(
            "shovel", b, tmp_path / "s3", name=f"{name}c", exchange=f"{x}r",
            topic_prefix=["v02.report"],
            post_broker=a, post_exchange=f"{x}reports", to_clusters="C",
        )  # fmt: skip
        listens = settings("report", a, tmp_path / "r", exchange=f"{x}reports")
        async with (
            running(report, listens, on_report=told.append),
            running(shovel, back),
            running(shovel, elsewhere),
            running(subscribe, fetches),
            running(shovel, across),
        ):
            for announced in posts:
                await post(announced)
            await until(lambda: len(told) >= 2)
    assert {path.name for path in here.iterdir()} == {"for_b", "for_all"}
    assert {each.post.relpath for each in told} == {"for_b", "for_all"}
    assert {(each.code, each.post.from_cluster, each.post.source) for each in told} == {
        (201, "A", "guest")
    }


@pytest.mark.timeout(60)
async def test_a_report_reads_by_default_what_a_subscriber_writes(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / name).write_text("content")
    told: list[PostReport] = []
    fetches = settings(
        "subscribe", penstock.url, tmp_path / "f", exchange=f"x{name}",
        directory=str(tmp_path / "here"),
    )  # fmt: skip
    posts = settings(
        "post", penstock.url, tmp_path / "p", post_exchange=f"x{name}", path=[there],
        post_base_url="file:", post_base_dir=there,
    )  # fmt: skip
    async with (
        running(report, settings("report", penstock.url, tmp_path / "r"), on_report=told.append),
        running(subscribe, fetches),
    ):
        await post(posts)
        await until(lambda: any(each.post.name == name for each in told))


@pytest.mark.timeout(60)
async def test_reports_tell_of_transformed_files_and_of_parts(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "whole").write_text("content")
    (there / "parts").write_text("0123456789" * 3)
    told: list[PostReport] = []

    def shorten(arrived: Post, path: Path) -> Post:
        path.write_text("short")
        return replace(arrived, sum=Checksum("d", "0"), parts=Parts.whole(5))

    fetches = settings(
        "subscribe", penstock.url, tmp_path / "f", name=name, exchange=f"x{name}", inplace=False,
        directory=str(tmp_path / "here"), report_exchange=f"x{name}r",
    )  # fmt: skip
    reads = settings("report", penstock.url, tmp_path / "r", exchange=f"x{name}r")
    async with (
        running(report, reads, on_report=told.append),
        running(subscribe, fetches, plugins=[Plugin(on_file=shorten)]),
    ):
        for number, (file, size) in enumerate((("whole", 1), ("parts", 10))):
            await post(
                settings(
                    "post", penstock.url, tmp_path / f"p{number}", post_exchange=f"x{name}",
                    post_base_url="file:", path=[there / file], blocksize=size,
                )
            )  # fmt: skip
        await until(lambda: len(told) == 4)
    assert sorted((each.post.name, each.code) for each in told) == [
        *[("parts", 307)] * 3,
        ("whole", 203),
    ]


async def test_two_brokers_in_one_configuration_and_the_first_receipt_wins(
    penstock: Penstock, mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    """As a site consumes the same feed from two servers: over AMQP from one, over MQTT from the
    other. Each file is fetched once, and arrives if only one of them has announced it."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    for each in ("both", "one", "two"):
        (there / each).write_text(f"content of {each}")
    conf = tmp_path / "c" / "subscribe" / f"{name}.conf"
    conf.parent.mkdir(parents=True)
    exchange = f"exchange x{name}\nsubtopic #\n"
    conf.write_text(
        f"dialect sr3\nbroker {penstock.url}\n{exchange}broker {mqtt_broker.mqtt_url}\n"
        f"{exchange}directory {here}\nprivate_hosts on\nnodupe_ttl 5m\n"
    )
    fetches = read_conf(conf, flags={"state": tmp_path / "s"})
    assert len(subscriptions(fetches)) == 2
    with serving(there) as server:
        async with running(subscribe, fetches) as control:
            for number, (url, files) in enumerate((
                (penstock.url, ("both", "one")), (mqtt_broker.mqtt_url, ("both", "two")),
            )):  # fmt: skip
                await post(
                    settings(
                        "post", url, tmp_path / f"p{number}", dialect="sr3",
                        post_exchange=f"x{name}", post_base_url=server.url, post_base_dir=there,
                        path=[there / file for file in files],
                    )
                )  # fmt: skip
            await until(lambda: sum(control.counters.codes.values()) == 4)
        assert {path.name for path in here.iterdir()} == {"both", "one", "two"}
        assert control.counters.codes == {201: 3, 304: 1}
        assert sorted(path for path, _ in server.asked) == ["/both", "/one", "/two"]


@pytest.mark.timeout(60)
async def test_posts_go_to_two_brokers_of_one_configuration(
    penstock: Penstock, mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / name).write_text("content")
    conf = tmp_path / "c" / "post" / f"{name}.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(
        f"dialect sr3\npost_broker {penstock.url}\npost_exchange x{name}\n"
        f"post_baseUrl http://one/\npost_broker {mqtt_broker.mqtt_url}\n"
        f"post_baseUrl http://two/\npost_baseDir {there}\npath {there}\nfileEvents create\n"
    )
    async with connect(penstock.url) as one, connect(mqtt_broker.mqtt_url) as two:
        async with (
            one.subscribe("v03.#", exchange=f"x{name}") as first,
            two.subscribe(f"x{name}/v03/#") as second,
        ):
            await post(read_conf(conf, flags={"state": tmp_path / "s"}))
            urls = []
            for inflow in (first, second):
                message = await inflow.receive()
                urls.append(read_post(message.body, message.headers).url)
    assert urls == [f"http://one/{name}", f"http://two/{name}"]
