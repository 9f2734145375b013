"""Files to and from sr3, Sarracenia's present program, over both brokers.

sr3 publishes in transactions and polls with `basic.get`; trees are compared byte by byte, modes and
links included.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client import connect
from penstock_pump.components import post, subscribe
from tests.integration.pump.running import make_tree, running, settings, tree, until
from tests.integration.pump.sarracenia import Sarracenia
from tests.peers import Broker
from tests.pump.servers import serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


@pytest.fixture
def sr3(broker: Broker, tmp_path: Path) -> Sarracenia:
    return Sarracenia(tmp_path / "sr3", broker, "sr3", "sr3")


@pytest.mark.parametrize("form", ["v02", "v03"])
async def test_what_sr3_posts_we_fetch(
    form: str, broker: Broker, sr3: Sarracenia, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there)
    if form == "v02":
        (there / "link").unlink()  # sr3 announces links in v02 without what they point to
    exchange = f"x{name}"
    prefix = "v02.post" if form == "v02" else "v03"
    with serving(there) as server:
        sr3.configure(
            "post",
            f"post_broker {sr3.broker}\npost_exchange {exchange}\npost_format {form}\n"
            f"post_topicPrefix {prefix}\npost_baseUrl {server.url.rstrip('/')}\n"
            f"post_baseDir {there}\n",
        )
        fetches = settings(
            "subscribe", broker.url, tmp_path / "s", exchange=exchange, topic_prefix=[prefix],
            directory=str(here), mirror=True, join=True,
        )  # fmt: skip
        async with running(subscribe, fetches):
            await sr3.run("sr3_post", "-c", "t", "-p", str(there))
            await until(lambda: tree(here) == tree(there))


@pytest.mark.parametrize("form", ["v02", "v03"])
async def test_what_we_post_sr3_fetches(
    form: str, broker: Broker, sr3: Sarracenia, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    here.mkdir()
    make_tree(there)
    # sr3 leaves what v02 escapes in a name as it is: without blanks the two agree.
    if form == "v02":
        for path in [*there.rglob("* *")][::-1]:
            path.rename(path.with_name(path.name.replace(" ", "_").replace("#", "")))
        (there / "link").unlink()
        (there / "link").symlink_to("d0/sub_dir/file_0.txt")
    exchange = f"x{name}"
    prefix = "v02.post" if form == "v02" else "v03"
    sr3.configure(
        "subscribe",
        f"broker {sr3.broker}\nexchange {exchange}\ntopicPrefix {prefix}\n"
        f"queueName q_guest_{name}\nsubtopic #\nmirror on\ndirectory {here}\naccept .*\n",
    )
    with serving(there) as server:
        posts = settings(
            "post", broker.url, tmp_path / "p", post_exchange=exchange, post_format=form,
            post_base_url=server.url, post_base_dir=there, path=[there],
        )  # fmt: skip
        async with connect(broker.url) as fabric:
            # sr3 will not bind to an exchange that is not there.
            await fabric.publish("nobody.listens", b"", exchange=exchange)
        await sr3.run("sr3", "declare", "subscribe/t")
        await post(posts)
        async with sr3.running("sr3", "foreground", "subscribe/t"):
            await until(lambda: tree(here) == tree(there))
