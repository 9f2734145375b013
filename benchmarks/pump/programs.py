"""The pumps that are compared, each as the commands a person would run.

Penstock and v2 run with their defaults. sr3 does so once, and once *tuned*: a hundred messages a
cycle and next to no pause between cycles, which by default hold it at 250 files a second however
fast it could be. Everything is persistent, and whoever copies files syncs them: v2 makes hard links
of files of the same machine, and has nothing to sync.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, Protocol

from benchmarks.pump.grounds import Ground

SARRACENIA: Final = Path(__file__).parents[2] / ".peers" / "sarracenia" / "bin"


@dataclass(frozen=True, slots=True)
class Feed:
    """Where files are, and the URL they are announced with."""

    folder: Path
    base_url: str


class Program(Protocol):
    """One pump: how its components are started."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def post(self, ground: Ground, feed: Feed) -> subprocess.Popen[bytes]: ...

    def subscribe(self, ground: Ground, target: Path) -> subprocess.Popen[bytes]: ...

    def watch(self, ground: Ground, feed: Feed) -> subprocess.Popen[bytes]: ...


@dataclass(frozen=True, slots=True)
class Penstock:
    name: str = "penstock"

    @property
    def version(self) -> str:
        return version("penstock")

    def post(self, ground: Ground, feed: Feed) -> subprocess.Popen[bytes]:
        return self._run(ground, "post", *self._posting(ground, feed), feed.folder)

    def subscribe(self, ground: Ground, target: Path) -> subprocess.Popen[bytes]:
        where = ("--exchange", ground.exchange, "--queue", ground.queue)
        told = ("--directory", target, "--mirror", "--set", "report_back=no")
        near = ("--private-hosts", "--file-directories", "/")
        return self._run(ground, "subscribe", *where, *told, *near)

    def watch(self, ground: Ground, feed: Feed) -> subprocess.Popen[bytes]:
        return self._run(ground, "watch", *self._posting(ground, feed), feed.folder)

    def _posting(self, ground: Ground, feed: Feed) -> Sequence[str | Path]:
        where = ("--post-exchange", ground.exchange, "--base-url", feed.base_url)
        return (*where, "--base-dir", feed.folder)

    def _run(self, ground: Ground, *arguments: str | Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", "pump", *map(str, arguments)]
        command += ["--broker", ground.url, "--state", str(ground.folder / "state")]
        return _start(command, ground, {})


@dataclass(frozen=True, slots=True)
class Sr3:
    name: str = "sr3"
    tuning: str = ""

    @property
    def version(self) -> str:
        return _installed("metpx-sr3")

    def post(self, ground: Ground, feed: Feed) -> subprocess.Popen[bytes]:
        self._configure(ground, "post", self._posting(ground, feed))
        return self._run(ground, "sr3_post", "-c", "t", "-p", str(feed.folder))

    def subscribe(self, ground: Ground, target: Path) -> subprocess.Popen[bytes]:
        target.mkdir(exist_ok=True)
        self._configure(
            ground,
            "subscribe",
            f"broker {ground.plain_url}\nexchange {ground.exchange}\ntopicPrefix v02.post\n"
            f"queueName {ground.queue}\n{self.tuning}subtopic #\nmirror on\ndirectory {target}\n"
            "accept .*\n",
        )
        return self._run(ground, "sr3", "foreground", "subscribe/t")

    def watch(self, ground: Ground, feed: Feed) -> subprocess.Popen[bytes]:
        text = self._posting(ground, feed) + f"path {feed.folder}\n{self.tuning}"
        self._configure(ground, "watch", text)
        return self._run(ground, "sr3", "foreground", "watch/t")

    def _posting(self, ground: Ground, feed: Feed) -> str:
        return (
            f"post_broker {ground.plain_url}\npost_exchange {ground.exchange}\npost_format v02\n"
            f"post_topicPrefix v02.post\npost_baseUrl {feed.base_url.rstrip('/')}\n"
            f"post_baseDir {feed.folder}\n"
        )

    def _configure(self, ground: Ground, component: str, text: str) -> None:
        _configure(ground, "sr3", component, text)

    def _run(self, ground: Ground, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        return _start([str(SARRACENIA / program), *arguments], ground, _homes(ground))


@dataclass(frozen=True, slots=True)
class V2:
    name: str = "v2"

    @property
    def version(self) -> str:
        return _installed("metpx-sarracenia")

    def post(self, ground: Ground, feed: Feed) -> subprocess.Popen[bytes]:
        _configure(ground, "sarra", "post", self._posting(ground, feed))
        return self._run(ground, "sr_post", "-c", "t.conf", "-p", str(feed.folder))

    def subscribe(self, ground: Ground, target: Path) -> subprocess.Popen[bytes]:
        target.mkdir(exist_ok=True)
        text = (
            f"broker {ground.plain_url}\nexchange {ground.exchange}\nqueue_name {ground.queue}\n"
            "declare_queue off\nbind_queue off\n"
            f"subtopic #\nmirror on\ndirectory {target}\nreport_back off\naccept .*\n"
        )
        _configure(ground, "sarra", "subscribe", text)
        return self._run(ground, "sr_subscribe", "foreground", "t.conf")

    def watch(self, ground: Ground, feed: Feed) -> subprocess.Popen[bytes]:
        text = self._posting(ground, feed) + f"path {feed.folder}\n"
        _configure(ground, "sarra", "watch", text)
        return self._run(ground, "sr_watch", "foreground", "t.conf")

    def _posting(self, ground: Ground, feed: Feed) -> str:
        return (
            f"post_broker {ground.plain_url}\npost_exchange {ground.exchange}\nsum s\n"
            f"post_base_url {feed.base_url}\npost_base_dir {feed.folder}\n"
        )

    def _run(self, ground: Ground, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        return _start([str(SARRACENIA / program), *arguments], ground, _homes(ground))


PROGRAMS: Final[Mapping[str, Program]] = {
    "penstock": Penstock(),
    "sr3": Sr3(),
    "sr3-tuned": Sr3("sr3-tuned", "batch 100\nprefetch 200\nsleep 0.001\n"),
    "v2": V2(),
}


def _configure(ground: Ground, family: str, component: str, text: str) -> None:
    home = ground.folder / "config" / family
    (home / component).mkdir(parents=True, exist_ok=True)
    credential = ground.plain_url.replace("guest@", "guest:guest@")
    (home / "credentials.conf").write_text(credential + "\n")
    (home / component / "t.conf").write_text(text)


def _homes(ground: Ground) -> dict[str, str]:
    return {
        "HOME": str(ground.folder),
        "XDG_CONFIG_HOME": str(ground.folder / "config"),
        "XDG_CACHE_HOME": str(ground.folder / "cache"),
    }


def _start(
    command: list[str], ground: Ground, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with (ground.folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _installed(package: str) -> str:
    pip = [str(SARRACENIA / "pip"), "show", package]
    shown = subprocess.run(pip, capture_output=True, text=True).stdout
    found = [line.partition(": ")[2] for line in shown.splitlines() if line.startswith("Version")]
    return found[0] if found else "not installed"
