"""Whatever is killed in the middle: every file arrives, whole, and none is half there."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from penstock.pump.components import post, sarra, subscribe, winnow
from tests.cli.command import environment
from tests.conftest import NewPenstock
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
            "--mirror", "--state", tmp_path / "s", "--set", "durable=no",
        )  # fmt: skip
        async with process(*arguments):
            pass  # the queue is there now
        posts = settings(
            "post", penstock.url, tmp_path / "p", post_exchange=f"x{name}",
            post_base_url=server.url, post_base_dir=there, path=[there],
        )  # fmt: skip
        await post(posts)
        for portion in (40, 100, 160):
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
            posting = asyncio.create_task(post(posts))
            await until(partial(reached, here, 20))
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await until(partial(reached, here, 100))
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            assert (await posting).failed == {}
            await until(lambda: tree(here) == tree(there))
    assert tree(pump) == tree(there)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_chain_over_three_brokers_in_which_everything_is_killed(
    new_penstock: NewPenstock, tmp_path: Path
) -> None:
    brokers = [new_penstock(), new_penstock(), new_penstock()]
    there, pump, here = tmp_path / "there", tmp_path / "pump", tmp_path / "here"
    many(there, 1000)
    pump.mkdir()
    sums = sums_of(there)
    ports = (free_port(), free_port())
    components = {
        "sarra": (
            "sarra", "--broker", brokers[0].url, "--exchange", "xs", "--directory", pump,
            "--post-broker", brokers[1].url, "--post-exchange", "xa",
            "--base-url", f"http://127.0.0.1:{ports[1]}/", "--base-dir", pump,
        ),
        "winnow": (
            "winnow", "--broker", brokers[1].url, "--exchange", "xa",
            "--post-broker", brokers[2].url, "--post-exchange", "xw",
        ),
        "subscribe": (
            "subscribe", "--broker", brokers[2].url, "--exchange", "xw", "--directory", here,
            "--mirror", "--set", "report_back=no",
        ),
    }  # fmt: skip
    random = Random(7)
    async with AsyncExitStack() as stack:
        servers = [
            stack.enter_context(ExitStack()),
            stack.enter_context(ExitStack()),
        ]
        for place, (folder, port) in enumerate(zip((there, pump), ports, strict=True)):
            servers[place].enter_context(serving(folder, port))
        holders = {name: await stack.enter_async_context(AsyncExitStack()) for name in components}
        for name in reversed(components):
            await holders[name].enter_async_context(
                process(*components[name], "--state", tmp_path / name)
            )
        posting = asyncio.create_task(
            post(
                settings(
                    "post",
                    brokers[0].url,
                    tmp_path / "p",
                    post_exchange="xs",
                    post_base_url=f"http://127.0.0.1:{ports[0]}/",
                    post_base_dir=there,
                    path=[there],
                )
            )
        )
        for portion in range(100, 1000, 150):
            await until(partial(reached, here, portion))
            victim = random.choice([*components, "broker", "server"])
            if victim == "broker":
                broker = random.choice(brokers)
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            elif victim == "server":
                servers[0].close()
                servers[0].enter_context(serving(there, ports[0]))
            else:
                await holders[victim].aclose()
                await holders[victim].enter_async_context(
                    process(*components[victim], "--state", tmp_path / victim)
                )
            assert half_there(here, sums) == []
        assert (await posting).failed == {}
        await until(lambda: tree(here) == tree(there))
    assert tree(pump) == tree(there)


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
            f"broker {plain}\nexchange x{name}\nsubtopic #\ndirectory {here}\nmirror on\n"
            "accept .*\nreport_back off\n"
        )
    else:
        (folder / "t.toml").write_text(
            f'component = "subscribe"\nbroker = "{penstock.url}"\nexchange = "x{name}"\n'
            f'directory = "{here}"\nmirror = true\n'
        )
    state = tmp_path / "state"
    os.environ["XDG_STATE_HOME"] = str(state)
    try:
        async with process("--conf", folder / f"t.{kind}"):
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "penstock", "pump", "post", "-b", penstock.url,
                "--post-exchange", f"x{name}", "--base-url", "file:", str(there),
                "--base-dir", str(there), env=environment(), stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, _ = await child.communicate()
            assert out == b"announced 5\n"
            expected = {
                f"{str(there).lstrip('/')}/{path}": facts for path, facts in tree(there).items()
            }
            await until(lambda: tree(here) == expected)
    finally:
        del os.environ["XDG_STATE_HOME"]
    assert list(state.rglob("*.qname"))
