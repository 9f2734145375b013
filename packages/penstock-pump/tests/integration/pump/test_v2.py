"""Files to and from v2, Sarracenia's former programs: partitions and reports, over both brokers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.client import connect
from penstock_pump.components import post, report, subscribe
from penstock_pump.posts.reports import PostReport
from tests.integration.pump.running import make_tree, running, settings, tree, until
from tests.integration.pump.sarracenia import Sarracenia
from tests.peers import Broker
from tests.pump.servers import serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

BLOCK = 30_000


@pytest.fixture
def v2(broker: Broker, tmp_path: Path) -> Sarracenia:
    return Sarracenia(tmp_path / "v2", broker, "sarra", "sr_post")


def plain_tree(folder: Path, *, link: bool = True) -> None:
    """Names without blanks, a link, and one file large enough for parts."""
    make_tree(folder, 6)
    for path in [*folder.rglob("* *")][::-1]:
        path.rename(path.with_name(path.name.replace(" ", "_").replace("#", "")))
    (folder / "link").unlink()
    if link:
        (folder / "d0" / "link").symlink_to("sub_dir/file_0.txt")
    (folder / "empty").unlink()
    # v2 sends reports on files at the top under the topic of posts.
    (folder / "d0" / "big").write_bytes(os.urandom(5 * BLOCK + 17))


async def test_what_v2_posts_in_parts_we_put_together_and_report(
    broker: Broker, v2: Sarracenia, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    plain_tree(there)
    exchange = f"x{name}"
    with serving(there) as server:
        v2.configure(
            "post",
            f"post_broker {v2.broker}\npost_exchange {exchange}\nsum s\nblocksize {BLOCK}\n"
            f"post_base_url {server.url}\npost_base_dir {there}\n",
        )
        v2.configure(
            "report",
            f"broker {v2.broker}\nexchange {exchange}r\nqueue_name q_guest_{name}_r\nsubtopic #\n"
            "on_message msg_rawlog\naccept .*\n",
        )
        fetches = settings(
            "subscribe", broker.url, tmp_path / "s", exchange=exchange, directory=str(here),
            mirror=True, join=True, report_exchange=f"{exchange}r",
        )  # fmt: skip
        async with connect(broker.url) as fabric:
            await fabric.publish("nobody.listens", b"", exchange=f"{exchange}r")
        async with running(subscribe, fetches), v2.running("sr_report", "foreground", "t.conf"):
            await until(lambda: "declared queue" in v2.log)
            await v2.run("sr_post", "-c", "t.conf", "-p", str(there))
            await until(lambda: tree(here) == tree(there))
            await until(lambda: "v02.report.d0" in v2.whole_log and " 201 " in v2.whole_log)


async def test_what_we_post_v2_fetches_with_modes_and_links(
    broker: Broker, v2: Sarracenia, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    here.mkdir()
    plain_tree(there)
    exchange = f"x{name}"
    v2.configure(
        "subscribe",
        f"broker {v2.broker}\nexchange {exchange}\nqueue_name q_guest_{name}\nsubtopic #\n"
        f"mirror on\ndirectory {here}\nreport_back off\naccept .*\n",
    )
    with serving(there) as server:
        posts = settings(
            "post", broker.url, tmp_path / "p", post_exchange=exchange, path=[there],
            post_base_url=server.url, post_base_dir=there, to_clusters="ALL",
        )  # fmt: skip
        async with connect(broker.url) as fabric:
            await fabric.publish("nobody.listens", b"", exchange=exchange)
        async with v2.running("sr_subscribe", "foreground", "t.conf"):
            await until(lambda: "declared queue" in v2.log)
            await post(posts)
            await until(lambda: tree(here) == tree(there))


async def test_what_we_post_in_parts_v2_puts_together_and_reports(
    broker: Broker, v2: Sarracenia, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    here.mkdir()
    plain_tree(there, link=False)  # v2 takes a link that comes after parts for a part
    exchange = f"x{name}"
    told: list[PostReport] = []
    v2.configure(
        "subscribe",
        f"broker {v2.broker}\nexchange {exchange}\nqueue_name q_guest_{name}\nsubtopic #\n"
        f"mirror on\ndirectory {here}\nreport_back on\nreport_exchange {exchange}r\naccept .*\n",
    )
    with serving(there) as server:
        posts = settings(
            "post", broker.url, tmp_path / "p", post_exchange=exchange, blocksize=BLOCK,
            post_base_url=server.url, post_base_dir=there, path=[there], to_clusters="ALL",
        )  # fmt: skip
        listens = settings("report", broker.url, tmp_path / "r", exchange=f"{exchange}r")
        async with connect(broker.url) as fabric:
            # v2 will not bind to an exchange that is not there.
            await fabric.publish("nobody.listens", b"", exchange=exchange)

        async with running(report, listens, on_report=told.append):
            async with v2.running("sr_subscribe", "foreground", "t.conf"):
                await until(lambda: "report_back to" in v2.log)
                await post(posts)
                await until(lambda: tree(here) == tree(there))
                await until(lambda: len(told) >= 12)
    assert {each.code for each in told} <= {201, 205}
    assert {each.post.relpath.lstrip("/") for each in told} == set(tree(there))
