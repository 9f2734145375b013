"""Writes the pages of docs/reference from the code. `make docs` runs it; a test compares."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import typer.main
from prometheus_client import Metric
from typer.core import TyperCommand, TyperGroup

from penstock.cli import app
from penstock.cli.errors import EXIT_STATUS, INTERRUPTED
from penstock.client import errors as client_errors
from penstock.core import errors
from penstock.core.metrics import METRICS
from penstock.core.settings_model import field_default, field_descriptions, field_types
from penstock.server.management.http import error_status
from penstock.server.management.metrics import QUEUE_METRICS
from penstock.server.management.server import ROUTES
from penstock.wire.amqp091.errors import close_reason
from penstock_hives import errors as hives_errors
from penstock_hives.billing.settings import PaymentSettings
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.push.settings import PushSettings
from penstock_hives.server.configuration import SiteSettings
from penstock_hives.server.metrics import PREFIX, SITE_METRICS
from penstock_hives.server.settings import EngineSettings
from penstock_hives.settings import HivesSettings
from penstock_jobs import errors as jobs_errors
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_pump import errors as pump_errors
from penstock_pump.components import ComponentControl
from penstock_pump.config.settings import settings_of
from penstock_pump.metrics import registry as pump_registry
from penstock_spark import errors as spark_errors
from penstock_spark.bronze import BronzeBatch
from penstock_spark.connector.query_metrics import QueryMetrics
from penstock_spark.directory import FlowDirectory
from penstock_spark.progress import FlowProgress, RunState
from penstock_spark.status import flow_metrics
from scripts.configuration_page import type_name
from scripts.openapi_files import documents

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
_MADE: Final = "<!-- Made by `make docs` from the code. -->\n"


def commands() -> str:
    """Every command with its arguments and options."""
    root = typer.main.get_command(app)
    lines = ["# Commands", "", _MADE]
    lines += ["Every command prints its options with `--help`.", ""]
    for path, command in _walk(root, "penstock"):
        lines += _command(path, command)
    return "\n".join(lines).rstrip() + "\n"


def _walk(command: Any, path: str) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    if not isinstance(command, TyperGroup):
        yield path, command
        return
    if command.invoke_without_command and command.params:
        yield path, command
    context = command.context_class(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _walk(found, f"{path} {name}")


def _command(path: str, command: TyperCommand | TyperGroup) -> list[str]:
    context = command.context_class(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    help_text = inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")
    lines = [f"## `{path}`", "", help_text, "", "```", f"{path} {usage}", "```", ""]
    rows = [row for each in command.params if (row := _parameter(each, context))]
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    return lines


def _parameter(parameter: Any, context: Any) -> str | None:
    if getattr(parameter, "hidden", False) or parameter.name.startswith(("install_c", "show_c")):
        return None
    record = parameter.get_help_record(context)
    if record is None:  # an argument without a text
        return f"| `{parameter.human_readable_name}` | |"
    names, meaning = (" ".join(part.split()) for part in record)
    return f"| `{_cell(names)}` | {_cell(meaning)} |"


def management_api() -> str:
    """Every call of the management API."""
    lines = ["# Management API", "", _MADE]
    lines += [
        "The calls are RabbitMQ's where it has them. Names in braces stand for percent-encoded",
        "text: the virtual host `/` is `%2F`. The level is the least tag that the user needs; the",
        "permissions in the virtual host apply as well. [Management](../management.md) describes",
        "the API with examples.",
        "",
        "| method | path | level | what it does |",
        "|---|---|---|---|",
    ]
    for route in sorted(ROUTES, key=lambda route: (route.path, route.method)):
        if not route.path.startswith(("/api/", "/metrics")):
            continue
        level = route.level.name.lower()
        lines.append(f"| {route.method} | `{route.path}` | {level} | {_cell(route.summary)} |")
    return "\n".join(lines) + "\n"


#: Document of `scripts.openapi_files`, who serves it, and its description.
_APPLICATIONS: Final = (
    ("hives", "Hives", "`penstock hives serve`", "[Hives](../hives.md)"),
    ("jobs", "Jobs", "`penstock job api`", "[Jobs over HTTP](../jobs-http.md)"),
)


def application_apis() -> str:
    """Every call of the applications, from their OpenAPI documents."""
    found = documents()
    lines = ["# APIs of the applications", "", _MADE]
    lines += ["`make dist` writes the OpenAPI documents, with all parameters and bodies."]
    for name, title, server, page in _APPLICATIONS:
        lines += ["", f"## {title}", "", f"Served by {server}; {page} describes it.", ""]
        lines += ["| method | path | what it does |", "|---|---|---|"]
        for path, operations in sorted(found[name]["paths"].items()):
            for method, operation in operations.items():
                text = operation.get("description") or operation["summary"]
                meaning = " ".join(text.partition("\n\n")[0].split())
                lines.append(f"| {method.upper()} | `{path}` | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def metrics() -> str:
    """Every metric that a program of the packages serves."""
    lines = ["# Metrics", "", _MADE]
    lines += [
        "The broker serves these for Prometheus at its management address, under `/metrics`.",
        "[Installation](../installation.md#monitoring) has scrape jobs, alerts and dashboards.",
        "",
        "| metric | type | meaning |",
        "|---|---|---|",
    ]
    for metric in METRICS:
        name = f"penstock_{metric.name}" + ("_total" if metric.kind == "counter" else "")
        lines.append(f"| `{name}` | {metric.kind} | {metric.help} |")
    sync = "Duration of the sync of a group commit."
    lines.append(f"| `penstock_log_sync_seconds` | histogram | {sync} |")
    lines += [
        "",
        "`/metrics/detailed` has these for each queue, with the labels `vhost` and `queue`:",
        "",
    ]
    lines += ["| metric | meaning |", "|---|---|"]
    lines += [f"| `penstock_{name}` | {meaning} |" for _, name, meaning in QUEUE_METRICS]
    lines += ["", "`penstock hives serve --metrics PORT` serves these:", ""]
    lines += ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for name, kind, meaning, labels in SITE_METRICS:
        shown = ", ".join(f"`{each}`" for each in labels)
        lines.append(f"| `{PREFIX}{name}` | {kind} | {shown} | {meaning} |")
    for title, families in _exported():
        lines += ["", title, "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        for family in families:
            suffix = "_total" if family.type == "counter" else ""
            shown = ", ".join(f"`{each}`" for each in _labels(family))
            text = _cell(family.documentation)
            lines.append(f"| `{family.name}{suffix}` | {family.type} | {shown} | {text} |")
    return "\n".join(lines) + "\n"


def _exported() -> Iterator[tuple[str, Iterable[Metric]]]:
    """What the collectors of the packages export, once each has done some work."""
    with TemporaryDirectory() as folder:
        directory = FlowDirectory(Path(folder), "flow")
        progress = FlowProgress(directory.progress, "flow")
        progress.set_state(RunState.RUNNING, 0.0)
        batch = BronzeBatch(0, 1, (), {"stream": 1}, datetime.now(UTC))
        progress.record_batch(batch, 0.1, 0.1, time.time())
        yield (
            "`penstock pipeline run --metrics PORT` serves these:",
            list(flow_metrics(directory, "amqp://127.0.0.1:1").collect()),
        )
    yield (
        "`QueryMetrics` of `penstock_spark` exports these for a query of your own "
        "([Spark](../spark.md)):",
        QueryMetrics(None).collect(),
    )
    worker = WorkerMetrics()
    worker.observe("call", 1.0)
    yield "`penstock job worker --metrics PORT` serves these:", worker.registry.collect()
    control = ComponentControl()
    control.counters.queued = 0
    settings = settings_of({"component": "subscribe", "name": "name"})
    yield (
        "A component of the pump serves these with `--metrics PORT`:",
        pump_registry(settings, control).collect(),
    )


def _labels(family: Metric) -> Iterable[str]:
    declared: Iterable[str] | None = getattr(family, "_labelnames", None)
    if declared is not None:
        return declared
    return sorted({name for sample in family.samples for name in sample.labels} - {"le"})


def error_codes() -> str:
    """Every error with its code in each protocol."""
    lines = ["# Errors", "", _MADE]
    lines += [
        "An error has the code of each protocol. Of AMQP 0-9-1, a soft error closes the channel, a",
        "hard one the connection.",
        "",
        "| error | meaning | AMQP 0-9-1 | HTTP |",
        "|---|---|---|---|",
    ]
    for kind in _kinds(errors.PenstockError):
        reason = close_reason(kind("…"))
        scope = "hard" if reason.closes_connection else "soft"
        name = re.match(r"[A-Z_]+", reason.text)
        http = error_status(kind("…"))[0]
        code = f"{reason.code} {name[0] if name else ''} ({scope})"
        lines.append(f"| `{kind.__name__}` | {_meaning(kind)} | {code} | {http} |")
    for title, module in _ERRORS_OF_PACKAGES.items():
        lines += ["", f"## {title}", "", "| error | meaning |", "|---|---|"]
        for each in vars(module).values():
            own = isinstance(each, type) and issubclass(each, errors.PenstockError)
            if own and each.__module__ == module.__name__:
                lines.append(f"| `{each.__name__}` | {_meaning(each)} |")
    lines += ["", "## Exit statuses of commands", "", "| status | error |", "|---|---|"]
    lines += ["| 0 | none |"]
    lines += [f"| {status} | `{kind.__name__}` |" for kind, status in EXIT_STATUS]
    lines += [f"| {INTERRUPTED} | Ctrl-C |"]
    return "\n".join(lines) + "\n"


_ERRORS_OF_PACKAGES: Final = {
    "Clients": client_errors,
    "penstock-spark": spark_errors,
    "penstock-hives": hives_errors,
    "penstock-jobs": jobs_errors,
    "penstock-pump": pump_errors,
}


def _meaning(kind: type[errors.PenstockError]) -> str:
    return _cell(" ".join((kind.__dict__.get("__doc__") or "").split()))


_SERVERS: Final = "`penstock hives serve` and `dashboards`"
_HIVES: Final = (
    ("Server", EngineSettings, "`[engine]` of the file of `penstock hives serve --site FILE`."),
    ("Site", SiteSettings, "`[site]` of that file."),
    (
        "Application",
        HivesSettings,
        f"`[application]` of that file, or the environment: {_SERVERS}.",
    ),
    ("Identity", IdentitySettings, f"`[identity]` of that file, or the environment: {_SERVERS}."),
    (
        "Push notifications",
        PushSettings,
        "The environment: `penstock hives serve` and `penstock hives alerts`.",
    ),
    ("Payments", PaymentSettings, f"The environment: {_SERVERS}."),
)
#: Set by the command, not by people.
_INTERNAL: Final = {
    "Server": {"application", "options", "log"},
    "Site": {"application", "identity"},
}


def hives_settings() -> str:
    """Every setting of the hives application."""
    lines = ["# Settings of the hives application", "", _MADE]
    lines += [
        "Lists in the environment are separated by commas, or JSON; tables are JSON. Values of the",
        "file take precedence over the environment, options of the command over both.",
    ]
    for title, model, where in _HIVES:
        prefix = getattr(model, "PREFIX", "")
        texts, types = field_descriptions(model), field_types(model)
        lines += [
            "",
            f"## {title}",
            "",
            where,
            "",
            "| setting | type | default | meaning |",
            "|---|---|---|---|",
        ]
        for field in dataclasses.fields(model):
            if field.name not in _INTERNAL.get(title, set()):
                text = _cell(" ".join(texts.get(field.name, "").split()))
                setting = f"{prefix}{field.name.upper()}" if prefix else field.name
                kind = type_name(types[field.name])
                lines.append(f"| `{setting}` | {kind} | {_default(field)} | {text} |")
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[Any]) -> str:
    """As in TOML; defaults that depend on the machine are in the text."""
    if field.name in _FACTORIES:
        return _FACTORIES[field.name]
    value = field_default(field)
    if value in (None, "", {}, dataclasses.MISSING):
        return ""
    shown = str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, tuple | list):
        shown = json.dumps(list(value))
    return f"`{_cell(str(shown))}`"


_FACTORIES: Final = {
    "workers": "",
    "pictures": "`hives/pictures` in the data directory",
    "images": "`hives/images` in the data directory",
    "folder": "`hives/identity` in the data directory",
    "vapid_key": "`hives/vapid.pem` in the data directory",
}


def _kinds(kind: type[errors.PenstockError]) -> Iterator[type[errors.PenstockError]]:
    """The class and its subclasses in `core/errors.py`."""
    if kind.__module__ == errors.__name__:
        yield kind
        for each in kind.__subclasses__():
            yield from _kinds(each)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES: Final[dict[str, Callable[[], str]]] = {
    "commands.md": commands,
    "management-api.md": management_api,
    "application-apis.md": application_apis,
    "metrics.md": metrics,
    "errors.md": error_codes,
    "hives-settings.md": hives_settings,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
