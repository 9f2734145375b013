"""Flows of sr3's components and ours, mixed: as many files arrive as were announced.

Files are announced by a post, a watch and a poll, some twice. The posts are copied (shovel),
duplicates are removed (winnow), files are fetched and announced again (sarra), the posts are
forwarded (flow), files are sent to an FTP server (sender), and fetched from there (subscribe). Each
link is sr3's or ours in turn, over AMQP or MQTT: in two flows each component is both, at either end
of the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.client import connect
from penstock_pump.components import (
    flow,
    poll,
    post,
    sarra,
    sender,
    shovel,
    subscribe,
    watch,
    winnow,
)
from tests.integration.pump.running import running, settings, tree, until
from tests.integration.pump.sarracenia import Sarracenia
from tests.peers import Broker, MqttBroker
from tests.pump.servers import serving
from tests.pump.test_transports import ftpd

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

OURS: Final[dict[str, Any]] = {
    "shovel": shovel,
    "winnow": winnow,
    "sarra": sarra,
    "flow": flow,
    "sender": sender,
    "subscribe": subscribe,
    "poll": poll,
    "watch": watch,
}
CHAIN: Final = ("shovel", "winnow", "sarra", "flow", "sender", "subscribe")


def write_files(folder: Path, name: str, count: int) -> None:
    for number in range(count):
        path = folder / name / f"{name}_{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name} {number}\n" * (number + 1))


class MixedFlow:
    """Exchanges `x0` to `x6`, a link between each two, and the folders of files on their way."""

    def __init__(
        self, broker: Broker | MqttBroker, name: str, home: Path, even_is_theirs: bool, mqtt: bool
    ) -> None:
        self.sr3 = Sarracenia(home / "sr3", broker, "sr3", "sr3", mqtt=mqtt)
        self.url = broker.mqtt_url if mqtt else broker.url  # type: ignore[union-attr]
        self.name, self.home, self.mqtt = name, home, mqtt
        self.even_is_theirs = even_is_theirs
        self.there, self.middle, self.sent, self.end = (
            home / each for each in ("there", "middle", "sent", "end")
        )
        for each in (self.there, self.middle, self.sent, self.end):
            each.mkdir()

    def exchange(self, number: int) -> str:
        return f"x{self.name}{number}"

    def is_theirs(self, number: int) -> bool:
        return (number % 2 == 0) == self.even_is_theirs

    async def declare(self) -> None:
        """sr3 will not bind to an exchange that is not there."""
        if not self.mqtt:
            async with connect(self.url) as fabric:
                for number in range(7):
                    await fabric.publish("nobody.listens", b"", exchange=self.exchange(number))

    async def start(
        self, stack: AsyncExitStack, component: str, theirs: bool, **given: Any
    ) -> None:
        """With our names of options."""
        if theirs:
            words = {"post_base_url": "post_baseUrl", "post_base_dir": "post_baseDir"}
            words |= {"base_dir": "baseDir", "poll_url": "pollUrl", "destination": "sendTo"}
            words |= {"suppress_duplicates": "nodupe_ttl", "queue": "queueName"}
            lines = [f"{words.get(key, key)} {value}" for key, value in given.items()]
            if "exchange" in given:
                lines += [f"broker {self.sr3.broker}", "subtopic #"]
            if "post_exchange" in given:
                lines.append(f"post_broker {self.sr3.broker}")
            lines += ["sleep 0.1", "batch 100"]
            if component == "poll":
                lines.append("scheduled_interval 1")
            if component == "flow":
                lines += ["callback gather.message", "callback post.message"]
            self.sr3.configure(component, "\n".join([*lines, ""]))
            await self.sr3.run("sr3", "declare", f"{component}/t")
            await stack.enter_async_context(self.sr3.running_component(component))
            if component == "watch":
                await until(lambda: "now active" in self.sr3.component_log("watch"))
            return
        if "post_exchange" in given:
            given["post_broker"] = self.url
        if "path" in given:
            given["path"] = [given["path"]]
        state = self.home / f"s_{component}"
        told = settings(component, self.url, state, dialect="sr3", name=self.name, **given)
        await stack.enter_async_context(running(OURS[component], told))

    async def start_link(self, stack: AsyncExitStack, number: int, **given: Any) -> None:
        component = CHAIN[number]
        given |= {"exchange": self.exchange(number)}
        given["queue"] = f"q_guest_{self.name}_{component}"
        if component != "subscribe":
            given["post_exchange"] = self.exchange(number + 1)
        await self.start(stack, component, self.is_theirs(number), **given)


@asynccontextmanager
async def mixed_flow(
    broker: Broker | MqttBroker, name: str, home: Path, even_is_theirs: bool, mqtt: bool
) -> AsyncIterator[MixedFlow]:
    made = MixedFlow(broker, name, home, even_is_theirs, mqtt)
    await made.declare()
    async with AsyncExitStack() as stack:
        middle, sent = (stack.enter_context(serving(each)) for each in (made.middle, made.sent))
        ftp = await stack.enter_async_context(ftpd(made.sent))
        made.sr3.add_credential(ftp.url.replace("me@", "me:se%2Fcret@") + " passive,binary")
        links: tuple[dict[str, Any], ...] = (
            {},
            {"suppress_duplicates": 300},
            {
                "directory": str(made.middle),
                "mirror": True,
                "post_base_url": middle.url.rstrip("/"),
                "post_base_dir": made.middle,
            },
            {"download": False},
            {
                "destination": ftp.url,
                "base_dir": made.middle,
                "directory": "/",
                "mirror": True,
                "post_base_url": sent.url.rstrip("/"),
                "post_base_dir": "/",
            },
            {"directory": str(made.end), "mirror": True},
        )
        if not made.is_theirs(4):
            credentials = home / "credentials.conf"
            credentials.write_text(ftp.url.replace("me@", "me:se%2Fcret@") + " passive,binary\n")
            links[4]["credentials"] = credentials
        for number in reversed(range(len(CHAIN))):
            await made.start_link(stack, number, **links[number])
        yield made


async def announce(made: MixedFlow, stack: AsyncExitStack, count: int) -> None:
    """By a post, twice; by a watch; by a poll."""
    for name in ("posted", "watched", "polled"):
        (made.there / name).mkdir()
    server = stack.enter_context(serving(made.there))
    base = server.url.rstrip("/")
    given: dict[str, Any] = {"post_exchange": made.exchange(0), "post_base_url": base}
    write_files(made.there, "polled", count)
    await made.start(
        stack, "watch", not made.even_is_theirs, path=made.there / "watched",
        post_base_dir=made.there, **given,
    )  # fmt: skip
    polled = {**given, "poll_url": server.url, "path": "polled/"}
    await made.start(stack, "poll", made.even_is_theirs, **polled)
    write_files(made.there, "watched", count)
    write_files(made.there, "posted", count)
    if made.even_is_theirs:
        lines = f"post_broker {made.sr3.broker}\npost_exchange {made.exchange(0)}\n"
        lines += f"post_baseUrl {base}\npost_baseDir {made.there}\n"
        made.sr3.configure("post", lines)
        for _ in range(2):
            await made.sr3.run("sr3_post", "-c", "t", "-p", str(made.there / "posted"))
        return
    for number in range(2):
        posts = settings(
            "post", made.url, made.home / f"p{number}", dialect="sr3", folders=False,
            post_base_dir=made.there, path=[made.there / "posted"], **given,
        )  # fmt: skip
        assert (await post(posts)).announced == count


@pytest.mark.parametrize(
    ("server", "even_is_theirs", "count"),
    [
        pytest.param("penstock", True, 4, marks=pytest.mark.slow),  # test_flows has as much
        ("mqtt_penstock", False, 4),
        pytest.param("rabbitmq", False, 100, marks=pytest.mark.slow),
        pytest.param("mosquitto", True, 100, marks=pytest.mark.slow),
    ],
)
async def test_as_many_files_arrive_as_were_announced(
    server: str,
    even_is_theirs: bool,
    count: int,
    request: pytest.FixtureRequest,
    name: str,
    tmp_path: Path,
) -> None:
    mqtt = server in ("mqtt_penstock", "mosquitto")
    broker = request.getfixturevalue(server)
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(
            mixed_flow(broker, name, tmp_path, even_is_theirs, mqtt)
        )
        await announce(made, stack, count)
        try:
            await until(lambda: len(tree(made.end)) == 3 * count, 40 + count)
        except TimeoutError:
            raise AssertionError({
                each.name: len(tree(each)) for each in (made.middle, made.sent, made.end)
            }) from None  # fmt: skip
        await asyncio.sleep(0)
    contents = {Path(path).name: each[2] for path, each in tree(made.there).items()}
    for folder in (made.middle, made.sent, made.end):
        assert {Path(path).name: each[2] for path, each in tree(folder).items()} == contents
