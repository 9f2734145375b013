"""Files to and from v2, Sarracenia's former programs: partitions and reports, over both brokers."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.client import connect
from penstock_pump.components import (
    post,
    report,
    sarra,
    sender,
    shovel,
    subscribe,
    winnow,
)
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.posts.formats import read_post
from penstock_pump.posts.reports import PostReport
from tests.integration.pump.running import make_tree, running, settings, tree, until
from tests.integration.pump.sarracenia import Sarracenia
from tests.peers import Broker, Penstock
from tests.pump.servers import serving
from tests.pump.test_transports import ftpd

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


#: v2's components between ours, or ours between v2's: each link reads the exchange before it.
CHAIN = ("shovel", "winnow", "sarra", "sender", "subscribe")
OURS: dict[str, Any] = {
    "shovel": shovel,
    "winnow": winnow,
    "sarra": sarra,
    "sender": sender,
    "subscribe": subscribe,
}


@pytest.mark.parametrize(
    "theirs",
    [
        {"shovel", "sarra", "subscribe"},
        pytest.param({"winnow", "sender"}, marks=pytest.mark.slow),
    ],
    ids=lambda names: "-".join(sorted(names)),
)
async def test_components_between_those_of_v2(
    penstock: Penstock, name: str, tmp_path: Path, theirs: set[str]
) -> None:
    """A post and a watch announce, each file twice; what winnow leaves is fetched, sent by FTP and
    fetched from there."""
    v2 = Sarracenia(tmp_path / "v2", penstock, "sarra", "sr_post")
    there, middle, sent, end = (tmp_path / each for each in ("there", "middle", "sent", "end"))
    for each in (there, middle, sent, end):
        each.mkdir()
    for number in range(6):
        path = there / ("posted" if number % 2 else "watched") / f"file_{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"content {number}\n" * (number + 1))
    async with AsyncExitStack() as stack:
        ftp = await stack.enter_async_context(ftpd(sent))
        line = ftp.url.replace("me@", "me:se%2Fcret@") + " passive,binary\n"
        v2.add_credential(line)
        credentials = tmp_path / "credentials.conf"
        credentials.write_text(line)
        served = {
            each: stack.enter_context(serving(each)).url.rstrip("/")
            for each in (there, middle, sent)
        }
        links: dict[str, dict[str, Any]] = {
            "shovel": {},
            "winnow": {"suppress_duplicates": 300},
            "sarra": {
                "directory": str(middle), "mirror": True, "post_base_url": served[middle],
                "post_base_dir": middle,
            },
            "sender": {
                "destination": ftp.url, "base_dir": middle, "directory": "/", "mirror": True,
                "post_base_url": served[sent], "post_base_dir": "/", "to_clusters": "ALL",
            },
            "subscribe": {"directory": str(end), "mirror": True},
        }  # fmt: skip
        async with connect(penstock.url) as fabric:
            # v2 will not bind to an exchange that is not there.
            for number in range(len(CHAIN) + 1):
                await fabric.publish("nobody.listens", b"", exchange=f"x{name}{number}")
        bound = 0
        for number, component in reversed(list(enumerate(CHAIN))):
            given = links[component] | {
                "exchange": f"x{name}{number}", "queue": f"q_guest_{name}_{component}",
            }  # fmt: skip
            if component != "subscribe":
                given["post_exchange"] = f"x{name}{number + 1}"
            if component in theirs:
                given["queue_name"] = given.pop("queue")
                if given.get("post_base_dir") == "/":
                    del given["post_base_dir"]  # v2 would remove every slash
                lines = [f"{key} {value}" for key, value in given.items()]
                if component != "subscribe":
                    lines.append(f"post_broker {v2.broker}")
                text = "\n".join(
                    [
                        f"broker {v2.broker}",
                        *lines,
                        "subtopic #",
                        "report_back off",
                        "accept .*",
                        "",
                    ]
                )
                v2.configure(component, text)
                running_v2 = v2.running(f"sr_{component}", "foreground", "t.conf")
                await stack.enter_async_context(running_v2)
                bound += 1
                await until(lambda: v2.whole_log.count("declared queue") >= bound)  # noqa: B023
                continue
            if component != "subscribe":
                given["post_broker"] = penstock.url
            told = settings(
                component, penstock.url, tmp_path / f"s_{component}", name=name, join=True,
                accept_unmatched=True, credentials=credentials, strict_sums=False,
                report_back=False, **given,
            )  # fmt: skip
            await stack.enter_async_context(running(OURS[component], told))
        base = {"post_exchange": f"x{name}0", "post_base_url": served[there]}
        lines = [f"post_broker {v2.broker}", f"post_base_dir {there}", "to ALL"]
        v2.configure("post", "\n".join([*lines, *(f"{k} {v}" for k, v in base.items()), ""]))
        await v2.run("sr_post", "-c", "t.conf", "-p", str(there))
        ours = settings(
            "post", penstock.url, tmp_path / "p", path=[there], post_base_dir=there,
            to_clusters="ALL", join=True, **base,
        )  # fmt: skip
        assert (await post(ours)).announced == 6
        try:
            await until(lambda: tree(end) == tree(there))
        except TimeoutError:
            found = {each.name: sorted(tree(each)) for each in (middle, sent, end)}
            raise AssertionError(found, v2.log) from None
    assert len(tree(middle)) == len(tree(sent)) == 6


async def test_what_a_watch_and_a_poll_of_v2_announce_we_fetch(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    v2 = Sarracenia(tmp_path / "v2", penstock, "sarra", "sr_post")
    watched, polled, here = tmp_path / "watched", tmp_path / "polled", tmp_path / "here"
    for each in (watched, polled):
        each.mkdir()
    (polled / "polled.txt").write_text("content of a poll\n")
    exchange = f"x{name}"
    fetches = settings(
        "subscribe", penstock.url, tmp_path / "s", exchange=exchange, directory=str(here),
        join=True, report_back=False, strict_sums=False,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        served, listed = (stack.enter_context(serving(each)).url for each in (watched, polled))
        v2.add_credential(listed)
        common = f"post_broker {v2.broker}\npost_exchange {exchange}\n"
        v2.configure(
            "watch", f"{common}post_base_url {served}\npost_base_dir {watched}\npath {watched}\n"
        )
        v2.configure(
            "poll",
            f"{common}post_base_url {listed}\ndestination {listed}\ndirectory /\nget .*\nsleep 1\n",
        )
        await stack.enter_async_context(running(subscribe, fetches))
        for component in ("watch", "poll"):
            await stack.enter_async_context(v2.running(f"sr_{component}", "foreground", "t.conf"))
        await until(lambda: (here / "polled.txt").is_file())
        await until(lambda: "sr_watch now active" in v2.whole_log)
        (watched / "watched.txt").write_text("content of a watch\n")
        await until(lambda: (here / "watched.txt").is_file())
    assert (here / "polled.txt").read_text() == "content of a poll\n"
    assert (here / "watched.txt").read_text() == "content of a watch\n"


async def test_instances_of_a_winnow_share_what_v2_and_we_split_by_checksum(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    """Each file is announced twice by v2 and once by us, over two exchanges; each passes once."""
    v2 = Sarracenia(tmp_path / "v2", penstock, "sarra", "sr_post")
    there = tmp_path / "there"
    there.mkdir()
    for number in range(12):
        (there / f"file_{number}").write_text(f"content {number}\n")
    common = {"post_exchange": f"x{name}", "post_exchange_split": 2, "sum": "s"}
    common |= {"post_base_url": f"file:{there}/", "post_base_dir": there}
    lines = "".join(f"{key} {value}\n" for key, value in common.items())
    v2.configure("post", f"post_broker {v2.broker}\nto ALL\n{lines}")
    conf = tmp_path / "conf" / "winnow" / "t.conf"
    conf.parent.mkdir(parents=True)
    (conf.parents[1] / "credentials.conf").write_text(f"{penstock.url}\n")
    conf.write_text(
        f"broker {v2.broker}\nexchange x{name}\nexchange_split on\ninstances 2\nsubtopic #\n"
        f"queue_name q_guest_{name}\npost_broker {v2.broker}\npost_exchange y{name}\n"
    )
    async with AsyncExitStack() as stack:
        fabric = await stack.enter_async_context(connect(penstock.url))
        inflow = await stack.enter_async_context(fabric.subscribe("v02.#", exchange=f"y{name}"))
        controls = []
        for instance in (1, 2):
            told = read_conf(conf, flags={"instance": instance, "state": tmp_path / "s"})
            controls.append(await stack.enter_async_context(running(winnow, told)))
        for _ in range(2):
            await v2.run("sr_post", "-c", "t.conf", "-p", str(there))
        ours = settings("post", penstock.url, tmp_path / "p", path=[there], **common)
        assert (await post(ours)).announced == 12
        await until(lambda: sum(each.counters.received for each in controls) == 36)
        await until(lambda: sum(each.counters.codes.total() for each in controls) == 36)
        async with asyncio.timeout(60):
            found = [await inflow.receive() for _ in range(12)]
    names = {read_post(each.body, each.headers).name for each in found}
    assert names == {path.name for path in there.iterdir()}
    assert [each.counters.codes[304] for each in controls] == [
        2 * each.counters.codes[201] for each in controls
    ]
    assert all(each.counters.codes[201] for each in controls)
