"""The same configuration on the same feed gives sr3 and Penstock the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client import connect
from penstock_pump.components import post, subscribe
from penstock_pump.config.sarracenia import read_conf
from tests.integration.pump.running import make_tree, running, settings, tree, until
from tests.integration.pump.sarracenia import Sarracenia
from tests.peers import Penstock
from tests.pump.servers import serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


@pytest.mark.parametrize("placement", ["", "mirror on\nstrip 1\nreject .*file_1.*\n"])
async def test_the_same_file_gives_the_same_files(
    placement: str, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    """Neither topicPrefix nor acceptUnmatched are set: sr3's defaults decide."""
    sr3 = Sarracenia(tmp_path / "sr3", penstock, "sr3", "sr3")
    there, theirs, ours = (tmp_path / each for each in ("there", "theirs", "ours"))
    theirs.mkdir()
    make_tree(there, 10)
    for path in [*there.rglob("* *")][::-1]:
        path.rename(path.with_name(path.name.replace(" ", "_").replace("#", "")))
    (there / "link").unlink()
    text = f"broker {sr3.broker}\nexchange x{name}\n{placement}"
    sr3.configure(
        "subscribe", f"{text}queueName q_guest_{name}_t\nsubtopic #\ndirectory {theirs}\n"
    )
    conf = tmp_path / "sr3" / "config" / "sr3" / "subscribe" / "ours.conf"
    conf.write_text(
        f"{text}queueName q_guest_{name}_o\nsubtopic #\ndirectory {ours}\nprivate_hosts on\n"
    )
    ours_settings = read_conf(conf, None, {"state": tmp_path / "s", "durable": False})
    assert ours_settings.dialect == "sr3"
    with serving(there) as server:
        posts = settings(
            "post", penstock.url, tmp_path / "p", dialect="sr3", post_exchange=f"x{name}",
            post_base_url=server.url, post_base_dir=there, path=[there],
        )  # fmt: skip
        async with connect(penstock.url) as fabric:
            # sr3 will not bind to an exchange that is not there.
            await fabric.publish("nobody.listens", b"", exchange=f"x{name}")
        await sr3.run("sr3", "declare", "subscribe/t")
        async with running(subscribe, ours_settings):
            await post(posts)
            async with sr3.running("sr3", "foreground", "subscribe/t"):
                wanted = 5 if placement else 11  # nine files, and an empty one
                await until(lambda: len(tree(ours)) >= wanted and tree(ours) == tree(theirs))
    assert tree(ours)
