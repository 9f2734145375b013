"""Figures about a broker."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from penstock.core.metrics import METRICS, Metrics


def scraped(metrics: Metrics) -> dict[str, float]:
    text = metrics.exposition().decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


def test_a_plain_integer_that_was_added_to_is_what_is_scraped() -> None:
    metrics = Metrics()
    metrics.published += 3
    metrics.bytes_in += 100
    assert scraped(metrics)["penstock_messages_published_total"] == 3
    assert scraped(metrics)["penstock_received_bytes_total"] == 100


def test_what_is_asked_for_is_filled_in_just_before() -> None:
    metrics = Metrics()
    looks: list[int] = []

    def look(into: Metrics) -> None:
        looks.append(1)
        into.ready = 42

    metrics.on_scrape(look)
    assert looks == []
    assert scraped(metrics)["penstock_messages_ready"] == 42
    assert looks == [1]


def test_every_figure_has_an_attribute_a_name_and_a_meaning() -> None:
    metrics = Metrics()
    seen = scraped(metrics)
    for figure in METRICS:
        suffix = "_total" if figure.kind == "counter" else ""
        assert seen[f"penstock_{figure.name}{suffix}"] == getattr(metrics, figure.attribute) == 0
        assert figure.help.endswith(".")


def test_two_brokers_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.published += 1
    assert scraped(other)["penstock_messages_published_total"] == 0


def test_a_sync_is_observed_once_a_commit() -> None:
    metrics = Metrics()
    metrics.observe_sync(0.002)
    assert scraped(metrics)["penstock_log_sync_seconds_count"] == 1
