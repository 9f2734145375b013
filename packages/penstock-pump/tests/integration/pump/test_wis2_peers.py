"""WIS2 with the WMO's own client at the other end, pywis-pubsub, which a wis2box is made of; and
the bucket that a wis2box takes data from."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.client import connect
from penstock_pump.components import poll, post, sender, subscribe
from penstock_pump.posts.wis2_schema import notification_problems
from tests.fixtures import missing
from tests.integration.pump.running import running, settings, until
from tests.paths import PEERS
from tests.peers import MqttBroker, PeerMissing, Penstock, Process, free_port
from tests.pump.servers import serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]

PROGRAM = PEERS / "wis2" / "bin" / "pywis-pubsub"
CENTRE = "origin/a/wis2/mw-malawi/data/core/weather"
SECONDS = 60.0


class WmoClient:
    """`pywis-pubsub` with a configuration for one broker."""

    def __init__(self, home: Path, broker: MqttBroker, topic: str) -> None:
        if not PROGRAM.exists():
            missing(PeerMissing("pywis-pubsub is not installed: scripts/peers does it"))
        self._log = home / "wmo.log"
        self._config = home / "wmo.yml"
        self.data = home / "theirs"
        self._config.write_text(
            f"broker: {broker.mqtt_url}\npublish_topic: {topic}\n"
            f"subscribe_topics: ['{topic}/#']\nverify_data: true\n"
            f"storage:\n  type: fs\n  options:\n    basedir: {self.data}\n    filepath: link\n"
        )

    async def publish(self, *arguments: str) -> None:
        words = (str(PROGRAM), "publish", "-c", str(self._config), *arguments)
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0, self._log.read_text()

    @asynccontextmanager
    async def subscribing(self) -> AsyncIterator[None]:
        """It downloads what is announced."""
        words = [str(PROGRAM), "subscribe", "-c", str(self._config), "--download", "-v", "DEBUG"]
        process = Process(words, self._log, {**os.environ, "PYTHONUNBUFFERED": "1"})
        try:
            await asyncio.to_thread(
                process.wait_for_line, "DEBUG:pywis_pubsub.mqtt:Received SUBACK"
            )
            yield
        finally:
            process.end(signal.SIGKILL)


def is_same(there: Path, here: Path) -> bool:
    return here.is_file() and here.read_bytes() == there.read_bytes()


async def test_what_a_centre_announces_we_fetch_update_and_remove(
    mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there" / "data", tmp_path / "here"
    there.mkdir(parents=True)
    (there / "a.bufr4").write_bytes(b"BUFR" + bytes(6000))
    (there / "small.bufr4").write_bytes(b"BUFR small")
    topic = f"{CENTRE}/{name.replace('.', '-')}"
    centre = WmoClient(tmp_path, mqtt_broker, topic)
    fetches = settings(
        "subscribe", mqtt_broker.mqtt_url, tmp_path / "s", exchange="",
        topic_prefix=["origin.a.wis2"], subtopic=["*.data.core.weather.#"], mirror=True,
        directory=str(here), report_back=False, strict_sums=True,
    )  # fmt: skip
    with serving(there.parent) as server:
        async with running(subscribe, fetches):
            url = f"{server.url}data/a.bufr4"
            place = ("-d", "2026-11-19T00:00:00Z", "-w", "0-454-2-AWSNAMI")
            await centre.publish("-u", url, *place)
            await centre.publish("-u", f"{server.url}data/small.bufr4", "-in", "true")
            for each in ("a.bufr4", "small.bufr4"):
                await until(lambda: is_same(there / each, here / "data" / each))  # noqa: B023
            assert "/data/small.bufr4" in [path for path, _ in server.asked]
            (there / "a.bufr4").write_bytes(b"BUFR, corrected")
            await centre.publish("-u", url, *place, "-op", "update")
            await until(lambda: is_same(there / "a.bufr4", here / "data" / "a.bufr4"))
            await centre.publish("-u", url, *place, "-op", "delete")
            await until(lambda: not (here / "data" / "a.bufr4").exists())
    assert (here / "data" / "small.bufr4").is_file()


async def test_what_we_announce_the_wmo_client_fetches_and_verifies(
    mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / "data").mkdir(parents=True)
    (there / "data" / "a.bufr4").write_bytes(b"BUFR" + bytes(6000))
    (there / "data" / "small.bufr4").write_bytes(b"BUFR small")
    topic = f"{CENTRE}/{name.replace('.', '-')}"
    client = WmoClient(tmp_path, mqtt_broker, topic)
    with serving(there) as server:
        posts = settings(
            "post", mqtt_broker.mqtt_url, tmp_path / "p", post_exchange="", post_format="wis2",
            post_topic=topic.replace("/", "."), post_base_url=server.url, post_base_dir=there,
            path=[there], inline=100,
        )  # fmt: skip
        async with connect(mqtt_broker.mqtt_url) as fabric:
            async with fabric.subscribe(f"{topic}/#") as inflow, client.subscribing():
                await post(posts)
                bodies = [(await inflow.receive()).body for _ in range(2)]
                for path in ("data/a.bufr4", "data/small.bufr4"):
                    await until(lambda: is_same(there / path, client.data / path))  # noqa: B023
    assert [notification_problems(each) for each in bodies] == [[], []]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """An object store with the incoming bucket of a wis2box."""
    pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = Process(command, tmp_path / "moto", {**os.environ, "PYTHONWARNINGS": "ignore"})
    url = f"http://127.0.0.1:{port}"
    try:
        process.wait_for_port(port)
        request = urllib.request.Request(f"{url}/wis2box-incoming", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()
        yield url
    finally:
        process.end_group(signal.SIGKILL)


async def test_files_go_into_the_incoming_bucket_of_a_wis2box(
    penstock: Penstock, name: str, tmp_path: Path, store: str
) -> None:
    there = tmp_path / "there"
    folder = there / "mw-malawi" / "data" / "core" / "weather"
    folder.mkdir(parents=True)
    (folder / "stations.csv").write_text("wsi,pressure\n0-454-2-AWSNAMI,1013.2\n")
    credentials = tmp_path / "credentials.conf"
    credentials.write_text(f"s3://key:secret@wis2box-incoming s3_endpoint={store}\n")
    sends = settings(
        "sender", penstock.url, tmp_path / "s", name=name, exchange=f"x{name}", base_dir=there,
        destination="s3://wis2box-incoming", credentials=credentials,
    )  # fmt: skip
    fetches = settings(
        "poll", penstock.url, tmp_path / "l", poll_url="s3://wis2box-incoming/", name=name,
        post_exchange=f"y{name}", credentials=credentials, sleep=1, post_format="v03",
    )  # fmt: skip
    async with connect(penstock.url) as fabric:
        async with fabric.subscribe("#", exchange=f"y{name}") as inflow:
            async with running(sender, sends), running(poll, fetches):
                await post(
                    settings(
                        "post", penstock.url, tmp_path / "p", post_exchange=f"x{name}",
                        post_base_url=f"file:{there}/", post_base_dir=there, path=[there],
                    )
                )  # fmt: skip
                async with asyncio.timeout(SECONDS):
                    found = (await inflow.receive()).json()
    assert found["relPath"] == "mw-malawi/data/core/weather/stations.csv"
    assert found["size"] == (folder / "stations.csv").stat().st_size
