"""sr3's static and dynamic flow tests, rebuilt, with its components and ours mixed.

Two posts announce the same files. A sarra fetches each once and announces its copy, which a
subscriber fetches. A watch announces what arrives there. From the watch the files go by SFTP to
another folder (sender), and over a shovel to MQTT and a subscriber there. What was sent is fetched
by SFTP; it is also found by a poll, and announced by a post with FTP URLs, and fetched from both.
All folders are the same in the end: that is the static flow. In the dynamic flow files are then
linked, moved, replaced and removed in the watched folder, while components are stopped and started;
what comes from the watch follows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.client import connect
from penstock_pump.components import (
    poll,
    post,
    sarra,
    sender,
    shovel,
    subscribe,
    watch,
)
from tests.integration.pump.running import running, settings, tree, until
from tests.integration.pump.sarracenia import Sarracenia
from tests.peers import Penstock
from tests.pump.servers import serving
from tests.pump.test_transports import Server, ftpd, sshd

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

OURS: Final[dict[str, Any]] = {
    "sarra": sarra,
    "subscribe": subscribe,
    "watch": watch,
    "sender": sender,
    "shovel": shovel,
    "poll": poll,
}
#: sr3's names of our settings.
WORDS: Final = {
    "post_base_url": "post_baseUrl",
    "post_base_dir": "post_baseDir",
    "base_dir": "baseDir",
    "poll_url": "pollUrl",
    "destination": "sendTo",
    "suppress_duplicates": "nodupe_ttl",
    "queue": "queueName",
}
FOLDERS: Final = ("first", "sent", "over_mqtt", "by_sftp", "polled", "by_ftp")
#: Those that follow the watch; a poll and a post do not see what is removed.
FOLLOWING: Final = ("first", "sent", "over_mqtt", "by_sftp")


class FlowSite:
    """Folders, servers and brokers of one flow, and the components that run in it."""

    def __init__(self, broker: Penstock, name: str, home: Path) -> None:
        self.sr3 = Sarracenia(home / "sr3", broker, "sr3", "sr3")
        self.sr3.add_credential(f"mqtt://guest:guest@127.0.0.1:{broker.mqtt_port}/")
        self.urls = {"amqp": broker.url, "mqtt": broker.mqtt_url}
        self.their_urls = {
            "amqp": self.sr3.broker,
            "mqtt": f"mqtt://guest@127.0.0.1:{broker.mqtt_port}/",
        }
        self.name, self.home = name, home
        self.credentials = home / "credentials.conf"
        self.folders = {each: home / each for each in ("data", "served", *FOLDERS)}
        for each in self.folders.values():
            each.mkdir()
        self.known_hosts = home / "sshd" / "known"

    def exchange(self, name: str) -> str:
        return f"x{self.name}{name}"

    def add_server(self, line: str) -> None:
        self.sr3.add_credential(line)
        with self.credentials.open("a") as file:
            file.write(f"{line}\n")

    def trees(self, names: tuple[str, ...]) -> dict[str, dict[str, tuple[str, str]]]:
        """Kind and content; the servers and watches do not all keep modes."""
        return {
            name: {
                path: (kind, content)
                for path, (kind, _, content) in tree(self.folders[name]).items()
                if not path.endswith((".tmp", ".part"))
            }
            for name in names
        }

    def equal(self, names: tuple[str, ...], count: int) -> bool:
        first, *others = self.trees(names).values()
        return len(first) == count and all(each == first for each in others)

    @asynccontextmanager
    async def running(
        self, component: str, label: str, theirs: bool, **given: Any
    ) -> AsyncIterator[None]:
        """With our names of options; `consumes` and `posts` are protocol and exchange."""
        consumes, posts = given.pop("consumes", None), given.pop("posts", None)
        if consumes is not None:
            given |= {"exchange": self.exchange(consumes[1])}
            given["queue"] = f"q_guest_{self.name}_{label}"
        if posts is not None:
            given["post_exchange"] = self.exchange(posts[1])
        if theirs:
            lines = [f"broker {self.their_urls[consumes[0]]}"] if consumes else []
            lines += [f"post_broker {self.their_urls[posts[0]]}"] if posts else []
            lines += [f"{WORDS.get(key, key)} {value}" for key, value in given.items()]
            lines += ["subtopic #"] if consumes else []
            lines += ["sleep 0.1", "batch 100", "logReject on"]
            if component == "poll":
                lines.append("scheduled_interval 1")
            self.sr3.configure(component, "\n".join([*lines, ""]), label)
            await self.sr3.run("sr3", "declare", f"{component}/{label}")
            async with self.sr3.running_component(component, label):
                if component == "watch":
                    await until(lambda: "now active" in self.sr3.component_log(component, label))
                yield
            return
        if posts is not None:
            given["post_broker"] = self.urls[posts[0]]
        if "path" in given:
            given["path"] = [given["path"]]
        if "directory" in given:
            given["directory"] = str(given["directory"])
        if component == "poll":
            given["sleep"] = 1
        told = settings(
            component, self.urls[consumes[0] if consumes else "amqp"], self.home / f"s_{label}",
            dialect="sr3", name=f"{self.name}{label}", credentials=self.credentials,
            known_hosts=self.known_hosts, join=True, **given,
        )  # fmt: skip
        async with running(OURS[component], told):
            yield

    async def post(self, label: str, theirs: bool, path: Path, **given: Any) -> None:
        given["post_exchange"] = self.exchange(given.pop("posts"))
        if theirs:
            lines = [f"post_broker {self.their_urls['amqp']}"]
            lines += [f"{WORDS.get(key, key)} {value}" for key, value in given.items()]
            self.sr3.configure("post", "\n".join([*lines, ""]), label)
            await self.sr3.run("sr3_post", "-c", label, "-p", str(path))
            return
        await post(
            settings(
                "post", self.urls["amqp"], self.home / f"s_{label}", dialect="sr3", folders=False,
                path=[path], **given,
            )
        )  # fmt: skip

    async def until_equal(self, names: tuple[str, ...], count: int) -> None:
        try:
            await until(lambda: self.equal(names, count), 60 + count)
        except TimeoutError:
            found = self.trees(names)
            most = {path: value for each in found.values() for path, value in each.items()}
            raise AssertionError({
                name: sorted(set(most.items()) ^ set(each.items())) for name, each in found.items()
            }) from None  # fmt: skip


Starter = Callable[[str], Any]


@asynccontextmanager
async def flow_site(
    broker: Penstock, name: str, home: Path, *, even_is_theirs: bool
) -> AsyncIterator[tuple[FlowSite, dict[str, tuple[str, bool, dict[str, Any]]], AsyncExitStack]]:
    """The site and its components, which are not started: each with who runs it."""
    site = FlowSite(broker, name, home)
    async with AsyncExitStack() as stack:
        ssh: Server = await stack.enter_async_context(sshd(site.folders["sent"], home / "sshd"))
        sftp = ssh.url.removesuffix(f"{site.folders['sent']}/")
        site.add_server(f"{sftp}/ ssh_keyfile={home}/sshd/user")
        served = stack.enter_context(serving(site.folders["served"])).url.rstrip("/")
        first, sent = site.folders["first"], site.folders["sent"]
        async with connect(site.urls["amqp"]) as fabric:
            # sr3 will not bind to an exchange that is not there.
            for each in ("posted", "public", "watched", "output", "polled", "by_ftp"):
                await fabric.publish("nobody.listens", b"", exchange=site.exchange(each))
        parts: dict[str, tuple[str, dict[str, Any]]] = {
            "download": ("sarra", {
                "consumes": ("amqp", "posted"), "posts": ("amqp", "public"),
                "directory": site.folders["served"], "mirror": True, "suppress_duplicates": 300,
                "post_base_url": served, "post_base_dir": site.folders["served"],
            }),
            "first": ("subscribe", {
                "consumes": ("amqp", "public"), "directory": first, "mirror": True,
            }),
            "watch": ("watch", {
                "posts": ("amqp", "watched"), "path": first, "post_base_url": f"file:{first}",
                "post_base_dir": first, "folders": False,
            }),
            "send": ("sender", {
                "consumes": ("amqp", "watched"), "posts": ("amqp", "output"),
                "destination": f"{sftp}/", "base_dir": first, "directory": sent, "mirror": True,
                "post_base_url": f"{sftp}/", "post_base_dir": "/",
            }),
            "bridge": ("shovel", {"consumes": ("amqp", "watched"), "posts": ("mqtt", "bridged")}),
            "over_mqtt": ("subscribe", {
                "consumes": ("mqtt", "bridged"), "directory": site.folders["over_mqtt"],
                "mirror": True,
            }),
            "by_sftp": ("subscribe", {
                "consumes": ("amqp", "output"), "directory": site.folders["by_sftp"],
                "mirror": True, "strip": ".*/sent/",
            }),
            "poll": ("poll", {
                "posts": ("amqp", "polled"), "poll_url": f"{sftp}/", "path": f"{sent}/",
                "suppress_duplicates": 3600,
            }),
            "polled": ("subscribe", {
                "consumes": ("amqp", "polled"), "directory": site.folders["polled"],
                "mirror": True, "strip": ".*/sent/",
            }),
            "by_ftp": ("subscribe", {
                "consumes": ("amqp", "by_ftp"), "directory": site.folders["by_ftp"],
                "mirror": True,
            }),
        }  # fmt: skip
        owned = {
            label: (component, (number % 2 == 0) == even_is_theirs, given)
            for number, (label, (component, given)) in enumerate(parts.items())
        }
        yield site, owned, stack


def change(folder: Path, files: list[Path]) -> int:
    """Of each five files one is linked, one moved, one replaced, one removed; returns how many
    there are now."""
    count = len(files)
    for number, path in enumerate(files):
        match number % 5:
            case 0:
                path.with_name(f"link_{path.name}").symlink_to(path.name)
                count += 1
            case 1:
                path.rename(path.with_name(f"moved_{path.name}"))
            case 2:
                path.write_text(f"other content of {path.name}\n")
            case 3:
                path.unlink()
                count -= 1
    return count


@pytest.mark.parametrize(
    ("even_is_theirs", "count"),
    [
        (True, 10),
        pytest.param(False, 10, marks=pytest.mark.slow),
        pytest.param(True, 100, marks=pytest.mark.slow),
    ],
)
async def test_static_and_dynamic_flow(
    mqtt_penstock: Penstock, name: str, tmp_path: Path, even_is_theirs: bool, count: int
) -> None:
    async with flow_site(mqtt_penstock, name, tmp_path, even_is_theirs=even_is_theirs) as (
        site, parts, stack,
    ):  # fmt: skip
        data = site.folders["data"]
        for number in range(count):
            path = data / f"d{number % 3}" / f"file_{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"content {number}\n" * (number + 1))
        stops = {}
        for label, (component, theirs, given) in parts.items():
            if label != "poll":
                stops[label] = await stack.enter_async_context(AsyncExitStack())
                await stops[label].enter_async_context(
                    site.running(component, label, theirs, **given)
                )
        base = stack.enter_context(serving(data)).url.rstrip("/")
        for label in ("dd1", "dd2"):
            await site.post(
                label, (label == "dd1") == even_is_theirs, data, posts="posted",
                post_base_url=base, post_base_dir=data,
            )  # fmt: skip
        await site.until_equal(FOLLOWING, count)
        ftp = await stack.enter_async_context(ftpd(site.folders["sent"]))
        site.add_server(ftp.url.replace("me@", "me:se%2Fcret@") + " passive,binary")
        await stops["by_ftp"].aclose()  # it has read its credentials before
        component, theirs, given = parts["by_ftp"]
        await stops["by_ftp"].enter_async_context(
            site.running(component, "by_ftp", theirs, **given)
        )
        await site.post(
            "test2", not even_is_theirs, site.folders["sent"], posts="by_ftp",
            post_base_url=ftp.url.rstrip("/"), post_base_dir=site.folders["sent"],
        )  # fmt: skip
        component, theirs, given = parts["poll"]
        async with site.running(component, "poll", theirs, **given):
            await site.until_equal(FOLDERS, count)
        assert site.trees(("data",))["data"] == site.trees(("first",))["first"]

        files = sorted(path for path in site.folders["first"].rglob("*") if path.is_file())
        for label in ("bridge", "by_sftp"):  # what is announced meanwhile waits for them
            await stops[label].aclose()
        left = change(site.folders["first"], files)
        for label in ("bridge", "by_sftp"):
            component, theirs, given = parts[label]
            await stops[label].enter_async_context(site.running(component, label, theirs, **given))
        await site.until_equal(FOLLOWING, left)
        for path in sorted(site.folders["first"].rglob("*")):
            if not path.is_dir():
                path.unlink()
        await site.until_equal(FOLLOWING, 0)
