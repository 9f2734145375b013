"""Flows of sr3's components and ours, mixed: as many files arrive as were announced.

The chain is that of a data pump: posts are copied (shovel), duplicates are removed (winnow), files
are fetched and announced again (sarra), and fetched by a subscriber. Each link is sr3's or ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client import connect
from penstock_pump.components import post, sarra, shovel, subscribe, watch, winnow
from tests.integration.pump.running import running, settings, tree, until
from tests.integration.pump.sarracenia import Sarracenia
from tests.peers import Broker, Penstock
from tests.pump.servers import serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

OURS = {"shovel": shovel, "winnow": winnow, "sarra": sarra, "subscribe": subscribe}
CHAIN = ("shovel", "winnow", "sarra", "subscribe")


def write_files(folder: Path, count: int) -> None:
    for number in range(count):
        path = folder / f"d{number % 5}" / f"file_{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {number}\n" * (number + 1))


class MixedFlow:
    """Exchanges `x0` to `x3`, a link between each two, and the folders of sarra and subscribe."""

    def __init__(self, broker: Broker, sr3: Sarracenia, name: str, home: Path) -> None:
        self.broker, self.sr3, self.name, self.home = broker, sr3, name, home
        self.middle, self.end = home / "middle", home / "end"
        self.middle.mkdir()
        self.end.mkdir()

    def exchange(self, number: int) -> str:
        return f"x{self.name}{number}"

    async def declare(self) -> None:
        """sr3 will not bind to an exchange that is not there."""
        async with connect(self.broker.url) as fabric:
            for number in range(4):
                await fabric.publish("nobody.listens", b"", exchange=self.exchange(number))

    async def start(self, stack: AsyncExitStack, number: int, theirs: bool, server: str) -> None:
        component = CHAIN[number]
        if theirs:
            self.sr3.configure(component, self._conf(number, server))
            await self.sr3.run("sr3", "declare", f"{component}/t")
            await stack.enter_async_context(self.sr3.running("sr3", "foreground", f"{component}/t"))
            return
        given: dict[str, Any] = {"dialect": "sr3", "exchange": self.exchange(number)}
        given["queue"] = f"q_guest_{self.name}_{component}"
        if number < 3:
            given |= {"post_broker": self.broker.url, "post_exchange": self.exchange(number + 1)}
        if component == "sarra":
            given |= {"directory": str(self.middle), "post_base_url": server}
            given["post_base_dir"] = self.middle
        if component == "subscribe":
            given |= {"directory": str(self.end), "mirror": True}
        told = settings(component, self.broker.url, self.home / f"s_{component}", **given)
        await stack.enter_async_context(running(OURS[component], told))

    def _conf(self, number: int, server: str) -> str:
        component = CHAIN[number]
        lines = [
            f"broker {self.sr3.broker}", f"exchange {self.exchange(number)}",
            f"queueName q_guest_{self.name}_{component}", "subtopic #", "sleep 0.1",
        ]  # fmt: skip
        if number < 3:
            lines += [
                f"post_broker {self.sr3.broker}",
                f"post_exchange {self.exchange(number + 1)}",
            ]
        if component == "sarra":
            lines += [f"directory {self.middle}", f"post_baseUrl {server.rstrip('/')}"]
            lines += [f"post_baseDir {self.middle}"]
        if component == "subscribe":
            lines += [f"directory {self.end}", "mirror on"]
        return "\n".join(lines) + "\n"


@asynccontextmanager
async def mixed_flow(
    broker: Broker, name: str, home: Path, first_is_theirs: bool
) -> AsyncIterator[MixedFlow]:
    """The links are sr3's and ours in turn."""
    sr3 = Sarracenia(home / "sr3", broker, "sr3", "sr3")
    flow = MixedFlow(broker, sr3, name, home)
    await flow.declare()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(serving(flow.middle))
        for number in reversed(range(4)):
            theirs = (number % 2 == 0) == first_is_theirs
            await flow.start(stack, number, theirs, server.url)
        yield flow


async def test_a_short_flow(penstock: Penstock, name: str, tmp_path: Path) -> None:
    """Ours post twice; sr3's shovel, our winnow, sr3's sarra, our subscriber."""
    there = tmp_path / "there"
    write_files(there, 10)
    async with mixed_flow(penstock, name, tmp_path, True) as flow:
        with serving(there) as server:
            for number in range(2):
                posts = settings(
                    "post", penstock.url, tmp_path / f"p{number}", dialect="sr3",
                    post_exchange=flow.exchange(0), post_base_url=server.url, post_base_dir=there,
                    path=[there], folders=False,
                )  # fmt: skip
                assert (await post(posts)).announced == 10
            await until(lambda: _contents(flow.end) == _contents(there))


@pytest.mark.slow
@pytest.mark.parametrize("first_is_theirs", [True, False])
async def test_a_long_flow(
    first_is_theirs: bool, broker: Broker, name: str, tmp_path: Path
) -> None:
    """Files are announced by both, and appear while the flow runs: the counts are equal."""
    there = tmp_path / "there"
    write_files(there, 200)
    async with mixed_flow(broker, name, tmp_path, first_is_theirs) as flow:
        with serving(there) as server:
            flow.sr3.configure(
                "post",
                f"post_broker {flow.sr3.broker}\npost_exchange {flow.exchange(0)}\n"
                f"post_baseUrl {server.url.rstrip('/')}\npost_baseDir {there}\n",
            )
            await flow.sr3.run("sr3_post", "-c", "t", "-p", str(there))
            watches = settings(
                "watch", broker.url, tmp_path / "w", dialect="sr3", post_exchange=flow.exchange(0),
                post_base_url=server.url, post_base_dir=there, path=[there], existing=True,
                folders=False,
            )  # fmt: skip
            async with running(watch, watches):
                write_files(there, 400)
                await until(lambda: len(_contents(flow.end)) >= 400, 200)
            assert _contents(flow.end) == _contents(flow.middle) == _contents(there)


def _contents(folder: Path) -> dict[str, str]:
    return {path: content for path, (_, _, content) in tree(folder).items()}
