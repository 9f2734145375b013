"""Files from one tree to another, over a broker: Penstock and RabbitMQ."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.client import connect
from penstock_pump.components import (
    post,
    report,
    restore,
    sarra,
    save,
    sender,
    shovel,
    subscribe,
    watch,
    winnow,
)
from penstock_pump.plugins import Plugin
from penstock_pump.posts import FileEvent, Post
from penstock_pump.posts.reports import PostReport
from tests.integration.pump.running import make_tree, running, settings, tree, until
from tests.peers import Broker, Penstock
from tests.pump.servers import serving


@pytest.fixture
def exchange(name: str) -> str:
    return f"x{name}"


def counted(posts: list[Post]) -> Plugin:
    """A plugin that notes what is announced again."""

    def note(post: Post) -> Post:
        posts.append(post)
        return post

    return Plugin(on_post=note)


@pytest.mark.parametrize("form", ["v02", "v03"])
async def test_a_tree_posted_and_fetched_by_http_is_the_same_tree(
    form: str, broker: Broker, exchange: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there)
    with serving(there) as server:
        fetched = settings(
            "subscribe",
            broker.url,
            tmp_path / "s",
            exchange=exchange,
            topic_prefix=["v02.post", "v03"],
            directory=str(here),
            mirror=True,
        )
        async with running(subscribe, fetched):
            posted = await post(
                settings(
                    "post",
                    broker.url,
                    tmp_path / "p",
                    post_exchange=exchange,
                    post_format=form,
                    post_base_url=server.url,
                    post_base_dir=there,
                    path=[there],
                )
            )
            await until(lambda: tree(here) == tree(there))
    assert (posted.announced, posted.failed) == (len(tree(there)), {})


async def test_small_files_travel_with_their_posts(
    broker: Broker, exchange: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there, 4)
    (there / "empty").unlink()
    fetched = settings(
        "subscribe", broker.url, tmp_path / "s", exchange=exchange, topic_prefix=["v03"],
        directory=str(here), mirror=True,
    )  # fmt: skip
    async with running(subscribe, fetched):
        posts = settings(
            "post", broker.url, tmp_path / "p", post_exchange=exchange, post_format="v03",
            post_base_url="http://nowhere.invalid/", post_base_dir=there, path=[there], inline=1000,
        )  # fmt: skip
        await post(posts)
        await until(lambda: tree(here) == tree(there))


async def test_parts_of_files_arrive_as_files(
    broker: Broker, exchange: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    (there / "big").write_bytes(bytes(range(256)) * 1000)
    fetched = settings(
        "subscribe",
        broker.url,
        tmp_path / "s",
        exchange=exchange,
        directory=str(here),
        mirror=True,
    )
    async with running(subscribe, fetched):
        posted = await post(
            settings(
                "post",
                broker.url,
                tmp_path / "p",
                post_exchange=exchange,
                post_base_url=f"file:{there}/",
                post_base_dir=there,
                path=[there],
                blocksize=50_000,
            )
        )
        assert posted.announced == 6
        await until(lambda: tree(here) == tree(there))


async def test_from_a_watch_over_sarra_and_winnow_to_two_subscribers_with_reports(
    broker: Broker, exchange: str, tmp_path: Path
) -> None:
    there, pump = tmp_path / "there", tmp_path / "pump"
    homes = [tmp_path / "one", tmp_path / "two"]
    there.mkdir()
    pump.mkdir()
    winnowed, reports = f"{exchange}w", f"{exchange}r"
    told: list[PostReport] = []

    def component(kind: str, folder: str, **given: Any) -> Any:
        return settings(kind, broker.url, tmp_path / folder, **given)

    with serving(there) as source, serving(pump) as second:
        watches = component(
            "watch",
            "w",
            post_exchange=exchange,
            post_base_url=source.url,
            post_base_dir=there,
            path=[there],
        )
        pumps = component(
            "sarra",
            "a",
            exchange=exchange,
            post_exchange=f"{exchange}s",
            post_base_url=second.url,
            directory=str(pump),
            post_base_dir=pump,
            queue=f"q_{exchange}.sarra",
        )
        winnows = component(
            "winnow",
            "n",
            exchange=f"{exchange}s",
            post_exchange=winnowed,
            queue=f"q_{exchange}.winnow",
        )
        fetches = [
            component(
                "subscribe",
                f"s{home.name}",
                exchange=winnowed,
                directory=str(home),
                mirror=True,
                report_exchange=reports,
            )
            for home in homes
        ]
        listens = component("report", "r", exchange=reports)
        async with (
            running(report, listens, on_report=told.append),
            running(subscribe, fetches[0]),
            running(subscribe, fetches[1]),
            running(winnow, winnows),
            running(sarra, pumps),
            running(watch, watches),
        ):
            make_tree(there)
            await until(lambda: all(tree(home) == tree(there) for home in homes))
            (there / "empty").rename(there / "renamed")
            (there / "link").unlink()
            await until(lambda: all(tree(home) == tree(there) for home in homes))
            await until(lambda: sum(1 for each in told if each.code == 201) >= 2 * 22)
    assert tree(pump) == tree(there)
    assert {each.user for each in told} == {"guest"}


async def test_two_equal_sources_are_one_downstream_and_none_is_missed_when_one_dies(
    broker: Broker, exchange: str, tmp_path: Path
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        for number in range(30):
            (folder / f"f{number}").write_text(f"{number}")
    # The second has what the first did not live to announce.
    (folders[1] / "last").write_text("last")
    heard: Counter[str] = Counter()
    winnows = settings(
        "winnow", broker.url, tmp_path / "n", exchange=exchange, post_exchange=f"{exchange}w",
        queue=f"q_{exchange}.winnow",
    )  # fmt: skip

    def source(folder: Path) -> Any:
        return settings(
            "post",
            broker.url,
            tmp_path / f"p{folder.name}",
            post_exchange=exchange,
            post_base_url=f"file:{folder}/",
            post_base_dir=folder,
            path=[folder],
            preserve_time=False,
        )

    async with connect(broker.url) as fabric:
        async with fabric.subscribe("#", exchange=f"{exchange}w") as inflow:
            async with running(winnow, winnows) as control:
                await asyncio.gather(*(post(source(folder)) for folder in folders))
                while sum(heard.values()) < 31:
                    message = await inflow.receive()
                    heard[message.text.split(" ")[2]] += 1
                await until(lambda: control.counters.codes.total() == 61)
            assert control.counters.codes == {201: 31, 304: 30}
            # A restart forgets nothing.
            async with running(winnow, winnows) as control:
                await post(source(folders[0]))
                await until(lambda: control.counters.codes.total() == 30)
            assert control.counters.codes == {304: 30}
    assert set(heard.values()) == {1}
    assert len(heard) == 31


async def test_a_shovel_carries_what_it_does_not_understand(
    broker: Broker, exchange: str, tmp_path: Path
) -> None:
    shovels = settings(
        "shovel", broker.url, tmp_path / "h", exchange=exchange, post_exchange=f"{exchange}t",
        queue=f"q_{exchange}.shovel", select=[{"reject": ".*secret.*"}],
    )  # fmt: skip
    headers = {"sum": "N,opaque", "x-ours": "kept", "parts": "1,5,1,0,0"}
    async with connect(broker.url) as fabric:
        async with fabric.subscribe("#", exchange=f"{exchange}t") as inflow:
            async with running(shovel, shovels) as control:
                send = fabric.publisher("v02.post.a.seed.form", exchange=exchange)
                await send.send("20240101000000 http://h/ a/secret", headers=headers)
                await send.send("not a post")
                body = "20240101000000.5 http://h/ a/b rest\n"
                await send.send(body, headers=headers)
                message = await inflow.receive()
    assert message.text == body
    assert dict(message.headers) == headers
    assert message.address == "v02.post.a.seed.form"
    assert control.counters.rejected == {"reject .*secret.*": 1}
    assert control.counters.codes == {417: 1, 201: 1}


async def test_a_server_that_is_away_is_waited_for_across_a_restart(
    broker: Broker, exchange: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there, 5)
    with serving(there) as server:
        port = server.server_address[1]
    fetched = settings(
        "subscribe", broker.url, tmp_path / "s", exchange=exchange, directory=str(here),
        mirror=True, attempts=1,
    )  # fmt: skip
    async with running(subscribe, fetched) as control:
        await post(
            settings(
                "post",
                broker.url,
                tmp_path / "p",
                post_exchange=exchange,
                post_base_url=f"http://127.0.0.1:{port}/",
                post_base_dir=there,
                path=[there / "d0"],
            )
        )
        await until(lambda: control.counters.postponed == 2)
    with serving(there, int(port)):
        async with running(subscribe, fetched):
            await until(lambda: tree(here / "d0") == tree(there / "d0"))


async def test_what_was_saved_is_restored(broker: Broker, exchange: str, tmp_path: Path) -> None:
    file = tmp_path / "saved"
    saves = settings(
        "save", broker.url, tmp_path / "v", exchange=exchange, queue=f"q_{exchange}.save",
        file=file, idle=1.0,
    )  # fmt: skip
    async with connect(broker.url) as fabric:
        async with fabric.subscribe("#", exchange=exchange, name=f"q_{exchange}.save"):
            for number in range(10):
                body = f"20240101000000 http://h/ f{number}"
                await fabric.publish(
                    "v02.post", body, headers={"n": str(number)}, exchange=exchange
                )
        assert await save(saves) == 10
        async with fabric.subscribe("#", exchange=f"{exchange}b") as inflow:
            again = settings(
                "restore", broker.url, tmp_path / "v", post_exchange=f"{exchange}b", file=file
            )
            assert await restore(again) == 10
            bodies = [(await inflow.receive()).text for _ in range(10)]
    assert bodies == [f"20240101000000 http://h/ f{number}" for number in range(10)]


async def test_a_sender_pushes_and_removes(broker: Broker, exchange: str, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    here.mkdir()
    make_tree(there, 6)
    (there / "link").unlink()
    announced: list[Post] = []
    with serving(here) as server:
        sends = settings(
            "sender", broker.url, tmp_path / "s", exchange=exchange, base_dir=there,
            destination=server.url, queue=f"q_{exchange}.sender", post_broker=broker.url,
            post_exchange=f"{exchange}o", post_base_url=server.url,
        )  # fmt: skip
        watches = settings(
            "watch", broker.url, tmp_path / "w", post_exchange=exchange, existing=True,
            post_base_url="file:/", post_base_dir=there, path=[there],
        )  # fmt: skip
        async with running(sender, sends, plugins=[counted(announced)]):
            async with running(watch, watches):
                await until(lambda: _contents(here) == _contents(there))
                (there / "empty").unlink()
                await until(lambda: not (here / "empty").exists())
    assert {each.base_url for each in announced} == {server.url}
    assert [each.event for each in announced].count(FileEvent.DELETE) == 1


@pytest.mark.parametrize("scheme", ["file", "http"])
async def test_blocks_that_a_sender_sends_are_put_together_at_the_destination(
    scheme: str, penstock: Penstock, exchange: str, tmp_path: Path
) -> None:
    there, middle, here = tmp_path / "there", tmp_path / "middle", tmp_path / "here"
    middle.mkdir()
    there.mkdir()
    (there / "big").write_bytes(bytes(range(256)) * 1000)
    with serving(middle) as server:
        url = server.url if scheme == "http" else f"file:{middle}/"
        sends = settings(
            "sender", penstock.url, tmp_path / "s", exchange=exchange, base_dir=there,
            destination=url, queue=f"q_{exchange}.sender", post_broker=penstock.url,
            post_exchange=f"{exchange}o", post_base_url=url,
        )  # fmt: skip
        fetches = settings(
            "subscribe", penstock.url, tmp_path / "f", exchange=f"{exchange}o",
            directory=str(here), mirror=True,
        )  # fmt: skip
        posts = settings(
            "post", penstock.url, tmp_path / "p", post_exchange=exchange, post_base_url="file:/",
            post_base_dir=there, path=[there], blocksize=50_000,
        )  # fmt: skip
        async with running(subscribe, fetches), running(sender, sends):
            await post(posts)
            await until(lambda: tree(here) == tree(there))
    assert tree(middle)["big"][2] == tree(there)["big"][2]
    assert [path.name for path in middle.iterdir()] == ["big"]


def _contents(folder: Path) -> dict[str, str]:
    return {path: content for path, (_, _, content) in tree(folder).items()}
