"""Expressions of the Prometheus rules and Grafana dashboards name metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.metrics import Metrics
from penstock.server.management.metrics import QUEUE_METRICS
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_pump.components import ComponentControl
from penstock_pump.config.settings import settings_of
from penstock_pump.metrics import registry
from penstock_spark.bronze import BronzeBatch
from penstock_spark.connector.query_metrics import QueryMetrics
from penstock_spark.directory import FlowDirectory
from penstock_spark.progress import FlowProgress, RunState
from penstock_spark.status import flow_metrics
from tests.paths import ROOT

PACKAGING: Final = ROOT / "packaging"
#: Made by Prometheus itself, and labels that it adds.
BUILT_IN: Final = {"up": {"job", "instance"}}
ADDED_LABELS: Final = {"instance", "job", "le"}
#: Variables of Grafana, with values that parse.
VARIABLES: Final = {"$__rate_interval": "5m", "$instance": ".*"}


def expressions() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load((PACKAGING / "prometheus" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for board in sorted((PACKAGING / "grafana").glob("*.json")):
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{board.stem}: {panel['title']}: {target['refId']}", target["expr"]


def selectors(expression: Any) -> Iterator[promql_parser.VectorSelector]:
    """All metrics that an expression reads."""
    match expression:
        case promql_parser.VectorSelector():
            yield expression
        case promql_parser.MatrixSelector():
            yield expression.vector_selector
        case promql_parser.BinaryExpr():
            yield from selectors(expression.lhs)
            yield from selectors(expression.rhs)
        case promql_parser.Call():
            for argument in expression.args:
                yield from selectors(argument)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            pass
        case _:
            yield from selectors(expression.expr)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Sample name → labels, of everything that the product exports."""
    found = dict(BUILT_IN)
    broker = Metrics().exposition().decode()
    for family in text_string_to_metric_families(broker):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    for _, name, _ in QUEUE_METRICS:
        found[f"penstock_{name}"] = {"vhost", "queue"}
    for registered in (
        worker(),
        registry(settings_of({"component": "sarra", "name": "radar"}), ComponentControl()),
        pipeline(tmp_path_factory.mktemp("flow")),
    ):
        for family in registered.collect():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    for family in QueryMetrics(None).collect():
        suffix = "_total" if family.type == "counter" else ""
        found[family.name + suffix] = {"query", "stream"}
    # The lag in messages needs a broker; a test of the pipeline has one.
    found["penstock_pipeline_lag_messages"] = {"flow", "stream"}
    return found


def worker() -> CollectorRegistry:
    metrics = WorkerMetrics()
    metrics.observe("command", 1.0)
    return metrics.registry


def pipeline(path: Path) -> CollectorRegistry:
    directory = FlowDirectory(path, "tally")
    progress = FlowProgress(directory.progress, "tally")
    progress.set_state(RunState.RUNNING, 1000.0)
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    batch = BronzeBatch(0, 5, (), {"sensors": 5}, noon)
    progress.record_batch(batch, 0.1, 0.2, noon.timestamp() + 1)
    return flow_metrics(directory, "amqp://127.0.0.1:9")


@pytest.mark.parametrize(("name", "text"), list(expressions()), ids=lambda each: each[:60])
def test_an_expression_reads_metrics_that_exist(
    name: str, text: str, exported: dict[str, set[str]]
) -> None:
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    read = list(selectors(promql_parser.parse(text)))
    assert read, "the expression reads no metric"
    for selector in read:
        assert selector.name in exported, f"no metric {selector.name}"
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= exported[str(selector.name)] | ADDED_LABELS


def test_texts_of_alerts_name_labels_that_exist(exported: dict[str, set[str]]) -> None:
    rules = yaml.safe_load((PACKAGING / "prometheus" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            first = next(selectors(promql_parser.parse(rule["expr"])))
            named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
            assert named <= exported[str(first.name)] | ADDED_LABELS, rule["alert"]
            assert {"summary", "action"} <= set(rule["annotations"])
