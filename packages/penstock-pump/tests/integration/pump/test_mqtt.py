"""Posts over MQTT, and from one protocol to the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client import connect
from penstock_pump.components import post, shovel, subscribe
from penstock_pump.components.topology import cleanup_component, declare_component
from tests.integration.pump.running import make_tree, running, settings, tree, until
from tests.peers import MqttBroker, Penstock
from tests.pump.servers import serving


@pytest.mark.parametrize("form", ["v02", "v03"])
async def test_a_tree_announced_over_mqtt(
    form: str, mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there)
    exchange = f"x{name}"
    with serving(there) as server:
        fetches = settings(
            "subscribe", mqtt_broker.mqtt_url, tmp_path / "s", exchange=exchange,
            topic_prefix=["v02.post", "v03"], directory=str(here), mirror=True, report_back=False,
        )  # fmt: skip
        async with running(subscribe, fetches):
            await post(
                settings(
                    "post",
                    mqtt_broker.mqtt_url,
                    tmp_path / "p",
                    post_exchange=exchange,
                    post_format=form,
                    post_base_url=server.url,
                    post_base_dir=there,
                    path=[there],
                )
            )
            await until(lambda: tree(here) == tree(there))


async def test_what_is_announced_while_we_are_away_waits(
    mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there, 4)
    fetches = settings(
        "subscribe", mqtt_broker.mqtt_url, tmp_path / "s", exchange=f"x{name}",
        directory=str(here), mirror=True, report_back=False,
    )  # fmt: skip
    async with running(subscribe, fetches):
        pass
    await post(
        settings(
            "post",
            mqtt_broker.mqtt_url,
            tmp_path / "p",
            post_exchange=f"x{name}",
            post_base_url=f"file:{there}/",
            post_base_dir=there,
            path=[there],
        )
    )
    async with running(subscribe, fetches):
        await until(lambda: tree(here) == tree(there))


async def test_a_shovel_from_amqp_to_mqtt(
    mqtt_penstock: Penstock, name: str, tmp_path: Path
) -> None:
    exchange = f"x{name}"
    shovels = settings(
        "shovel", mqtt_penstock.url, tmp_path / "h", exchange=exchange,
        post_broker=mqtt_penstock.mqtt_url, post_exchange="xpublic", post_format="v03",
        queue=f"q_{name}",
    )  # fmt: skip
    async with connect(mqtt_penstock.mqtt_url) as fabric:
        async with fabric.subscribe(f"xpublic/v03/{name}/#") as inflow:
            async with running(shovel, shovels):
                async with connect(mqtt_penstock.url) as amqp:
                    body = f"20240101000000 http://h/ {name}/b/f"
                    await amqp.publish("v02.post", body, exchange=exchange)
                message = await inflow.receive()
    assert message.json()["relPath"] == f"{name}/b/f"


async def test_a_shovel_between_exchanges_of_a_broker(
    mqtt_penstock: Penstock, name: str, tmp_path: Path
) -> None:
    url = mqtt_penstock.mqtt_url
    shovels = settings(
        "shovel", url, tmp_path / "h", dialect="sr3", name=name, exchange=f"{name}0",
        post_broker=url, post_exchange=f"{name}1",
    )  # fmt: skip
    async with connect(url) as fabric:
        async with fabric.subscribe("+/v03/#") as inflow, running(shovel, shovels):
            body = '{"pubTime": "20240101T000000", "baseUrl": "http://h/", "relPath": "a/f"}'
            await fabric.publish(f"{name}0/v03/a", body)
            topics = [(await inflow.receive()).address for _ in range(2)]
    assert topics == [f"{name}0/v03/a", f"{name}1/v03/a"]


async def test_instances_share_the_posts_of_a_topic(
    mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there, 40)
    first, second = (
        settings(
            "subscribe", mqtt_broker.mqtt_url, tmp_path / "s", name=name, exchange=f"x{name}",
            directory=str(here), mirror=True, report_back=False, instance=number, instances=2,
        )
        for number in (1, 2)
    )  # fmt: skip
    async with running(subscribe, first) as one, running(subscribe, second) as two:
        await post(
            settings(
                "post", mqtt_broker.mqtt_url, tmp_path / "p", post_exchange=f"x{name}",
                path=[there], post_base_url=f"file:{there}/", post_base_dir=there,
            )
        )  # fmt: skip
        await until(lambda: tree(here) == tree(there))
        received = [one.counters.received, two.counters.received]
    assert sum(received) == len(tree(there))
    assert min(received) > 0


async def test_cleanup_ends_a_session_with_what_waits_in_it(
    mqtt_broker: MqttBroker, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    make_tree(there, 4)
    fetches = settings(
        "subscribe", mqtt_broker.mqtt_url, tmp_path / "s", name=name, exchange=f"x{name}",
        directory=str(here), mirror=True, report_back=False, expire=600,
    )  # fmt: skip
    (queue,) = await declare_component(fetches)
    await post(
        settings(
            "post", mqtt_broker.mqtt_url, tmp_path / "p", post_exchange=f"x{name}",
            path=[there], post_base_url=f"file:{there}/", post_base_dir=there,
        )
    )  # fmt: skip
    assert await cleanup_component(fetches) == [queue]
    again = fetches.model_copy(update={"queue": queue})
    async with running(subscribe, again) as control:
        await post(
            settings(
                "post", mqtt_broker.mqtt_url, tmp_path / "p", post_exchange=f"x{name}",
                path=[there / "empty"], post_base_url=f"file:{there}/", post_base_dir=there,
            )
        )  # fmt: skip
        await until(lambda: control.counters.received > 0)
    assert [path.name for path in here.iterdir()] == ["empty"]
