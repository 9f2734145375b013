"""The same configuration on the same feed gives sr3 and Penstock the same files and the same posts,
option by option."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest

from penstock.client import Fabric, connect
from penstock_pump.components import sarra, shovel, subscribe, winnow
from penstock_pump.components.topology import declare_component
from penstock_pump.config.options import OptionStatus, find_option
from penstock_pump.config.sarracenia import read_conf
from tests.integration.pump.option_cases import (
    POSTING,
    SUBSCRIBERS,
    Feed,
    OptionCase,
    topic_of,
    write_files,
)
from tests.integration.pump.running import running
from tests.integration.pump.sarracenia import Sarracenia
from tests.peers import Penstock
from tests.pump.servers import serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

OURS: Final[dict[str, Any]] = {
    "subscribe": subscribe,
    "sarra": sarra,
    "shovel": shovel,
    "winnow": winnow,
}
#: Properties of posts that are the same.
COMPARED: Final = ("content_type", "delivery_mode", "expiration")
#: Components of either program that run at a time.
CONCURRENCY: Final = 4
THEIRS: Final = "theirs"
OWN: Final = "ours"


@dataclass(slots=True)
class OptionResult:
    """What one program has made of a case: files, and posts with their topics."""

    files: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    posts: list[dict[str, Any]] = field(default_factory=list)


class OptionSite:
    """A feed on an exchange, and a queue, a folder and an exchange of posts for each case and each
    program."""

    def __init__(self, broker: Penstock, name: str, home: Path) -> None:
        self.sr3 = Sarracenia(home / "sr3", broker, "sr3", "sr3")
        self._broker, self._name, self._home = broker, name, home
        self._conf = home / "sr3" / "config" / "sr3"
        self._turns = asyncio.Semaphore(CONCURRENCY)

    def _label(self, case: OptionCase, who: str) -> str:
        return f"{case.name.replace(' ', '_')}_{who}"

    def folder(self, case: OptionCase, who: str) -> Path:
        return self._home / who / case.name.replace(" ", "_")

    def exchange(self, feed: str) -> str:
        return f"xs_{self._name}{'' if feed == 'usual' else feed}"

    def posted(self, case: OptionCase, who: str) -> str:
        return f"y{self._name}{self._label(case, who)}"

    def queue(self, case: OptionCase, who: str) -> str:
        return f"q_guest_{self._name}_{self._label(case, who)}"

    def configure(self, case: OptionCase, who: str) -> None:
        folder = self.folder(case, who)
        folder.mkdir(parents=True)
        lines = f"broker {self.sr3.broker}\nexchange {self.exchange(case.feed)}\n"
        lines += f"queueName {self.queue(case, who)}\n{case.queue}"
        if case in POSTING:
            lines += f"post_broker {self.sr3.broker}\npost_exchange {self.posted(case, who)}\n"
        lines += case.text.replace("HERE", str(folder))
        if who == OWN:
            lines += "private_hosts on\n"
        self.sr3.configure(case.component, lines, self._label(case, who))

    def _settings(self, case: OptionCase) -> Any:
        path = self._conf / case.component / f"{self._label(case, OWN)}.conf"
        state = self._home / "state" / case.name.replace(" ", "_")
        return read_conf(path, None, {"state": state, "durable": False})

    async def declare(self, cases: Sequence[OptionCase]) -> None:
        for case in cases:
            self.configure(case, THEIRS)
        await self.sr3.run("sr3", f"--dangerWillRobinson={len(cases)}", "declare")
        for case in cases:
            self.configure(case, OWN)
            await declare_component(self._settings(case))

    async def publish(self, fabric: Fabric, feed: str, bodies: Iterator[dict[str, Any]]) -> None:
        for body in bodies:
            topic = topic_of(body)
            await fabric.publish(topic, body, exchange=self.exchange(feed))

    async def run(self, case: OptionCase, who: str) -> None:
        async with self._turns:
            if who == THEIRS:
                label = self._label(case, who)
                async with self.sr3.running_component(case.component, label, signal.SIGTERM):
                    await self._until_empty(case, who)
            else:
                async with running(OURS[case.component], self._settings(case)):
                    await self._until_empty(case, who)

    async def _until_empty(self, case: OptionCase, who: str) -> None:
        """A look now and then: the queue of another program has no event for us."""
        async with asyncio.timeout(120):
            while (await self._call("GET", f"queues/%2F/{self.queue(case, who)}"))["messages"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def bind_posts(self, case: OptionCase, who: str) -> None:
        """A queue with the name of the exchange receives what is posted to it."""
        name = self.posted(case, who)
        await self._call("PUT", f"exchanges/%2F/{name}", {"type": "topic", "durable": True})
        await self._call("PUT", f"queues/%2F/{name}", {"durable": True})
        await self._call("POST", f"bindings/%2F/e/{name}/q/{name}", {"routing_key": "#"})

    async def posts(self, case: OptionCase, who: str) -> list[dict[str, Any]]:
        """With topics and properties, in order."""
        asked = {"count": 1000, "ackmode": "ack_requeue_false", "encoding": "auto"}
        path = f"queues/%2F/{self.posted(case, who)}/get"
        found = [
            {
                "topic": each["routing_key"],
                **{name: each["properties"].get(name) for name in COMPARED},
                "payload": _payload(each["payload"], self.folder(case, who)),
            }
            for each in await self._call("POST", path, asked)
        ]
        return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._broker.http_url}/api/{path}", data, method=method)
        request.add_header("Authorization", f"Basic {b64encode(b'guest:guest').decode()}")
        request.add_header("Content-Type", "application/json")

        def call() -> Any:
            with urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")

        return await asyncio.to_thread(call)


def _payload(text: str, folder: Path) -> Any:
    """Paths of the two programs differ by their directories, and only ours names clusters."""
    text = text.replace(str(folder), "HERE")
    if not text.startswith("{"):
        return text
    body = json.loads(text)
    body["baseUrl"] = body["baseUrl"].rstrip("/")  # ours always ends with a slash
    return {
        name: body[name] for name in sorted(body) if not name.endswith(("_cluster", "_clusters"))
    }


def files_of(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Kind, mode, content and, to the second, the time of files."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            content: tuple[Any, ...] = ("link", path.readlink())
        elif path.name == "tmp":
            continue  # sr3 gives it the mode 775, whatever the umask
        elif path.is_dir():
            content = ("directory", f"{status.st_mode & 0o7777:o}")
        else:
            age = "now" if abs(status.st_mtime - time.time()) < 90 else round(status.st_mtime)
            content = ("file", f"{status.st_mode & 0o7777:o}", path.read_text(), age)
        found[path.relative_to(folder).as_posix()] = content
    return found


def differences(found: dict[str, OptionResult]) -> dict[str, Any]:
    theirs, ours = found[THEIRS], found[OWN]
    names = sorted({*theirs.files, *ours.files})
    different = {
        name: {THEIRS: theirs.files.get(name), OWN: ours.files.get(name)}
        for name in names
        if theirs.files.get(name) != ours.files.get(name)
    }
    posts = {
        THEIRS: [each for each in theirs.posts if each not in ours.posts],
        OWN: [each for each in ours.posts if each not in theirs.posts],
    }
    return {"files": different, "posts": posts} if different or any(posts.values()) else {}


async def compared(
    cases: Sequence[OptionCase], broker: Penstock, name: str, home: Path
) -> dict[str, dict[str, OptionResult]]:
    """The results of all cases, by case and program."""
    site = OptionSite(broker, name, home)
    there = home / "there"
    write_files(there)
    results = {case.name: {who: OptionResult() for who in (THEIRS, OWN)} for case in cases}
    both = [(case, who) for case in cases for who in (THEIRS, OWN)]
    with serving(there) as server:
        feed = Feed(there, server.url)
        async with connect(broker.url) as fabric:
            for kind in ("usual", "wrong"):
                await fabric.publish("nobody.listens", b"", exchange=site.exchange(kind))
            await site.declare(cases)
            for case, who in both:
                if case in POSTING:
                    await site.bind_posts(case, who)
            for kind, bodies in (("usual", feed.usual()), ("wrong", feed.wrong())):
                await site.publish(fabric, kind, bodies)
        await asyncio.gather(*(site.run(case, who) for case, who in both))
    for case, who in both:
        result = results[case.name][who]
        result.files = files_of(site.folder(case, who))
        if case in POSTING:
            result.posts = await site.posts(case, who)
    return results


EVERY: Final = (*SUBSCRIBERS, *POSTING)
#: Of options whose meaning is least obvious.
FEW: Final = ("placement", "names", "variables", "again", "winnow data", "shovel base")


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param([each for each in EVERY if each.name in FEW], id="few"),
        pytest.param(SUBSCRIBERS, id="subscribers", marks=pytest.mark.slow),
        pytest.param(POSTING, id="posting", marks=pytest.mark.slow),
    ],
)
async def test_the_same_files_and_posts(
    cases: Sequence[OptionCase], penstock: Penstock, name: str, tmp_path: Path
) -> None:
    found = await compared(cases, penstock, name, tmp_path)
    different = {case: made for case, each in found.items() if (made := differences(each))}
    assert not different, json.dumps(different, indent=1, default=str)
    assert all(each[OWN].files or each[OWN].posts for each in found.values())


def test_the_cases_are_about_more_than_thirty_options_that_are_honoured_or_without_effect() -> None:
    names = {name for case in EVERY for name in case.options}
    options = {name: find_option(name) for name in names}
    assert len(names) > 30
    assert [name for name, option in options.items() if option is None] == []
    refused = {
        name for name, option in options.items() if option and option.status == OptionStatus.REFUSED
    }
    assert refused == set()
