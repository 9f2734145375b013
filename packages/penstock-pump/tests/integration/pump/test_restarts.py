"""Whatever is killed in the middle: every file arrives, whole, and none is half there."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Self

import pytest

from penstock_pump.components import post, sarra, subscribe, winnow
from penstock_pump.poster.poster import PostCounts
from tests.cli.command import environment
from tests.fixtures import NewPenstock
from tests.integration.pump.running import count, make_tree, running, settings, tree, until
from tests.peers import Penstock, free_port
from tests.pump.servers import serving

FILES = 200


def many(folder: Path, files: int = FILES) -> None:
    for number in range(files):
        path = folder / f"d{number % 7}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(10_000))


@asynccontextmanager
async def process(*arguments: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A component as a process of its own, from the moment it is ready."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", "pump", *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    try:
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), 60)
        assert b"ready" in line
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def sums_of(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.md5(path.read_bytes()).hexdigest()
        for path in folder.rglob("f*")
        if path.is_file()
    }


def half_there(folder: Path, sums: dict[str, str]) -> list[Path]:
    """Files under their final names that are not what they should be."""
    return [
        path
        for path in folder.rglob("f*")
        if path.is_file()
        and not path.name.endswith(".tmp")
        and hashlib.md5(path.read_bytes()).hexdigest() != sums[path.name]
    ]


def reached(folder: Path, files: int) -> bool:
    return count(folder) >= files


async def test_a_subscriber_killed_again_and_again(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    many(there)
    sums = sums_of(there)
    with serving(there) as server:
        arguments = (
            "subscribe", "--broker", penstock.url, "--exchange", f"x{name}", "--directory", here,
            "--mirror", "--state", tmp_path / "s", "--set", "durable=no", "--private-hosts",
        )  # fmt: skip
        queues = settings(
            "subscribe", penstock.url, tmp_path / "s", exchange=f"x{name}", directory=str(here)
        )
        async with running(subscribe, queues):
            pass  # the queue is there now
        posts = settings(
            "post", penstock.url, tmp_path / "p", post_exchange=f"x{name}",
            post_base_url=server.url, post_base_dir=there, path=[there],
        )  # fmt: skip
        await post(posts)
        for portion in (60, 140):
            async with process(*arguments) as child:
                await until(partial(reached, here, portion))
                child.send_signal(signal.SIGKILL)
                await child.wait()
            assert half_there(here, sums) == []
        async with process(*arguments) as child:
            await until(lambda: tree(here) == tree(there))
            child.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(child.wait(), 60) == 0
    assert tree(here) == tree(there)


@pytest.mark.slow  # the chain over three brokers and bulk's test show it as well, a part each
async def test_a_broker_killed_in_the_middle_of_a_chain(
    new_penstock: NewPenstock, name: str, tmp_path: Path
) -> None:
    broker = new_penstock()
    there, pump, here = tmp_path / "there", tmp_path / "pump", tmp_path / "here"
    make_tree(there, 5)
    many(there)
    pump.mkdir()
    with serving(there) as first, serving(pump) as second:
        pumps = settings(
            "sarra", broker.url, tmp_path / "a", exchange="xs", post_exchange="xa",
            post_base_url=second.url, directory=str(pump), post_base_dir=pump,
        )  # fmt: skip
        winnows = settings("winnow", broker.url, tmp_path / "w", exchange="xa", post_exchange="xw")
        fetches = settings(
            "subscribe", broker.url, tmp_path / "s", exchange="xw", directory=str(here),
            mirror=True,
        )  # fmt: skip
        posts = settings(
            "post", broker.url, tmp_path / "p", post_exchange="xs", post_base_url=first.url,
            post_base_dir=there, path=[there],
        )  # fmt: skip
        async with running(subscribe, fetches), running(winnow, winnows), running(sarra, pumps):
            poster = asyncio.create_task(post(posts))
            await until(partial(reached, here, 20))
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await until(partial(reached, here, 100))
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            assert (await poster).failed == {}
            await until(lambda: tree(here) == tree(there))
    assert tree(pump) == tree(there)


class Chain:
    """source → sarra → winnow → two subscribers, over three brokers; each a process of its own."""

    def __init__(self, brokers: Sequence[Penstock], folder: Path) -> None:
        self.there, self.pump = folder / "there", folder / "pump"
        self.homes = [folder / "one", folder / "two"]
        self.pump.mkdir()
        self._brokers = brokers
        self._folder = folder
        self._ports = (free_port(), free_port())
        self._servers = (ExitStack(), ExitStack())
        self._components = {
            "sarra": (
                "sarra", "--broker", brokers[0].url, "--exchange", "xs", "--directory", self.pump,
                "--post-broker", brokers[1].url, "--post-exchange", "xa",
                "--base-url", f"http://127.0.0.1:{self._ports[1]}/", "--base-dir", self.pump,
                "--private-hosts",
            ),
            "winnow": (
                "winnow", "--broker", brokers[1].url, "--exchange", "xa",
                "--post-broker", brokers[2].url, "--post-exchange", "xw",
            ),
            **{
                home.name: (
                    "subscribe", "--broker", brokers[2].url, "--exchange", "xw", "--directory",
                    home, "--mirror", "--set", "report_back=no", "--private-hosts",
                )
                for home in self.homes
            },
        }  # fmt: skip
        self._holders = {name: AsyncExitStack() for name in self._components}

    @property
    def victims(self) -> list[str]:
        return [*self._components, "first broker", "second broker", "third broker", "server"]

    async def __aenter__(self) -> Self:
        for folder, port, stack in zip(
            (self.there, self.pump), self._ports, self._servers, strict=True
        ):
            stack.enter_context(serving(folder, port))
        await asyncio.gather(*map(self._begin, self._components))
        return self

    async def __aexit__(self, *_: object) -> None:
        for holder in self._holders.values():
            await holder.aclose()
        for server in self._servers:
            server.close()

    async def post(self) -> PostCounts:
        told = settings(
            "post", self._brokers[0].url, self._folder / "p", post_exchange="xs",
            post_base_url=f"http://127.0.0.1:{self._ports[0]}/", post_base_dir=self.there,
            path=[self.there],
        )  # fmt: skip
        return await post(told)

    async def kill(self, victim: str) -> None:
        """And start it again."""
        if victim == "server":
            self._servers[0].close()
            self._servers[0].enter_context(serving(self.there, self._ports[0]))
        elif victim.endswith("broker"):
            broker = self._brokers[["first", "second", "third"].index(victim.split()[0])]
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        else:
            await self._holders[victim].aclose()
            await self._begin(victim)

    async def _begin(self, name: str) -> None:
        arguments = (*self._components[name], "--state", self._folder / f"state of {name}")
        await self._holders[name].enter_async_context(process(*arguments))


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        pytest.param(300, ("sarra", "second broker", "server"), id="300"),
        pytest.param(10_000, 20, id="10000", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
async def test_a_chain_over_three_brokers_in_which_everything_is_killed(
    files: int, kills: int | Sequence[str], new_penstock: NewPenstock, tmp_path: Path
) -> None:
    many(tmp_path / "there", files)
    brokers = [new_penstock(), new_penstock(), new_penstock()]
    async with Chain(brokers, tmp_path) as chain:
        sums = sums_of(chain.there)
        if isinstance(kills, int):
            kills = Random(7).choices(chain.victims, k=kills)
        poster = asyncio.create_task(chain.post())
        for number, victim in enumerate(kills, 1):
            portion = number * files // (len(kills) + 1)
            await until(partial(reached, chain.homes[0], portion), seconds=600.0)
            await chain.kill(victim)
            for folder in (chain.pump, *chain.homes):
                assert half_there(folder, sums) == []
        assert (await poster).failed == {}
        for folder in (chain.pump, *chain.homes):
            await until(partial(reached, folder, files), seconds=600.0)
    # Nothing is missing, nothing is there twice, and nothing is left over.
    assert tree(chain.pump) == tree(chain.there)
    assert all(tree(home) == tree(chain.there) for home in chain.homes)


@pytest.mark.parametrize("kind", ["toml", "conf"])
async def test_configurations_run_as_they_are(
    kind: str, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there, 3)
    folder = tmp_path / "sr3" / "subscribe"
    folder.mkdir(parents=True)
    plain = f"amqp://guest@127.0.0.1:{penstock.port}/"
    if kind == "conf":
        (folder.parent / "credentials.conf").write_text(plain.replace("guest@", "guest:guest@"))
        (folder / "t.conf").write_text(
            f"broker {plain}\nexchange x{name}\ntopicPrefix v02.post\nsubtopic #\n"
            f"directory {here}\nmirror on\naccept .*\nfile_directories {there}\n"
        )
    else:
        (folder / "t.toml").write_text(
            f'component = "subscribe"\nbroker = "{penstock.url}"\nexchange = "x{name}"\n'
            f'directory = "{here}"\nmirror = true\nfile_directories = "{there}"\n'
        )
    state = tmp_path / "state"
    os.environ["XDG_STATE_HOME"] = str(state)
    try:
        async with process("--conf", folder / f"t.{kind}"):
            posts = settings(
                "post", penstock.url, tmp_path / "p", post_exchange=f"x{name}",
                post_base_url="file:", post_base_dir=there, path=[there],
            )  # fmt: skip
            assert (await post(posts)).announced == 5
            expected = {
                f"{str(there).lstrip('/')}/{path}": facts for path, facts in tree(there).items()
            }
            await until(lambda: tree(here) == expected)
    finally:
        del os.environ["XDG_STATE_HOME"]
    assert list(state.rglob("*.qname"))
