from __future__ import annotations

import asyncio

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.server import Broker
from tests.server.management.given import publish, queue, user


async def scrape(broker: Broker, path: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and by the values of their labels; `/metrics` asks for no name."""
    auth = None if path == "/metrics" else ("guest", "guest")
    async with httpx.AsyncClient(base_url=broker.addresses[1], auth=auth, timeout=60) as scraper:
        answer = await scraper.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


async def test_prometheus_reads_the_brokers_figures(api: httpx.AsyncClient, served: Broker) -> None:
    await queue(api, "orders")
    await publish(api, "orders")

    samples = await scrape(served, "/metrics")

    assert samples["penstock_messages_published_total"] == {(): 1}
    assert samples["penstock_messages_ready"] == {(): 1}
    assert samples["penstock_queues"] == {(): 1}


async def test_the_duration_of_syncs_is_observed(api: httpx.AsyncClient, served: Broker) -> None:
    synced = asyncio.Event()
    await queue(api, "orders", durable=True)
    served.kernel.committer.after(synced.set)
    served.kernel.committer.write()
    await synced.wait()

    samples = await scrape(served, "/metrics")

    assert samples["penstock_log_sync_seconds_count"][()] >= 1


async def test_figures_of_each_queue_are_apart(api: httpx.AsyncClient, served: Broker) -> None:
    await api.put("/vhosts/lab")
    await api.put("/queues/lab/a%22b%5C%0A", json={})
    await queue(api, "events", durable=True, arguments={"x-queue-type": "stream"})
    await publish(api, "events")

    samples = await scrape(served, "/metrics/detailed")
    of_one = await scrape(served, "/metrics/detailed?vhost=lab")

    assert samples["penstock_queue_messages_ready"] == {
        ("/", "events"): 1,
        ("lab", 'a"b\\\n'): 0,
    }
    assert samples["penstock_stream_next_offset"] == {("/", "events"): 1}
    assert set(of_one["penstock_queue_messages_ready"]) == {("lab", 'a"b\\\n')}


@pytest.mark.parametrize("path", ["/metrics/detailed", "/metrics/per-object"])
async def test_figures_of_each_queue_need_the_tag_monitoring(
    api: httpx.AsyncClient, served: Broker, path: str
) -> None:
    await user(api, "ada", "management")

    async with httpx.AsyncClient(base_url=served.addresses[1], timeout=60) as scraper:
        nobody = await scraper.get(path)
        ada = await scraper.get(path, auth=("ada", "ada"))

    assert (nobody.status_code, ada.status_code) == (401, 401)
    assert "queue" not in nobody.text
