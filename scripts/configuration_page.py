"""Writes `docs/configuration.md` from the models, so that the page cannot say what is not so.

`python -m scripts.configuration_page` (or `make docs`) writes it; a test compares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from penstock.core.config import SettingInfo, Settings, ShareOrBytes, list_settings
from penstock.core.settings_model import field_limits, field_types
from penstock.core.units import Bytes, Seconds, WholeSeconds

PAGE: Final = Path(__file__).parents[1] / "docs" / "configuration.md"

_HEAD: Final = """\
# Configuration

<!-- Made by `make docs` from penstock/core/config.py. -->

Every setting has a default that runs on one machine; nothing has to be configured to begin. A value
comes from the first of these places that has one:

1. a flag: `--data`, `--listen`, or `--set KEY=VALUE` for any setting;
2. the environment: `PENSTOCK_` and the key in capitals with two underscores for each dot, as
   `PENSTOCK_BROKER__HEARTBEAT=30s`;
3. the file `penstock.toml` in the working directory, or the one that `--config` or
   `PENSTOCK_CONFIG` names;
4. the default.

```toml
# penstock.toml
data = "/var/lib/penstock"

[broker]
listen = ["amqp://0.0.0.0", "amqps://0.0.0.0", "http://127.0.0.1"]
heartbeat = "30s"
memory_budget = "40%"

[broker.tls]
certificate = "/etc/penstock/server.pem"
key = "/etc/penstock/server.key"

[log]
format = "json"
```

`penstock config` shows the effective settings and their sources, `--changed` only those that differ
from the default, `--explain` the meaning of each, `--json` the same for programs:

```console
$ PENSTOCK_BROKER__HEARTBEAT=30s penstock config --changed --set log.level=debug
key               value  source
log.level         debug  flag --set
broker.heartbeat  30s    environment PENSTOCK_BROKER__HEARTBEAT
```

Invalid settings are refused before anything starts, with the source, the key and the allowed
values, all at once and with exit status 2:

```console
$ penstock config --set broker.heartbeet=1 --set log.level=loud
penstock: flag --set: log.level = 'loud': should be 'debug', 'info', 'warning' or 'error' (the \
lowest severity that is logged)
penstock: flag --set: unknown setting broker.heartbeet; did you mean broker.heartbeat?
```

| type | unit and notation |
|---|---|
| size | bytes: `65536`, `64KiB`, `16MiB`, `2GB` |
| duration | seconds: `10`, or `500ms`, `10s`, `5m`, `2h`, `1d` |
| share or size | a share of memory, `0.25` or `25%`, or a size |
| flag | `true` or `false` |
| list | a list in the file; in the environment and in flags with commas between, or as JSON |
| table | a table in the file; in the environment and in flags as JSON |
"""

#: The commands that use the settings of a section.
_USED_BY: Final = {
    "": "every command that has the option `--data`.",
    "log": "`penstock broker`, `up`, `store`, `dashboards`, `pipeline`, `hives`, `demo` and\n"
    "`job api`. `job worker` and `pump` have `--verbose` instead.",
    "broker": "`penstock broker`, `up` and `doctor`. Commands that call the management API\n"
    "(`broker status`, `trace`, `backup`, `cluster`, `definitions`, `console`) take its address\n"
    "from `listen`.",
    "up": "`penstock up`.",
}
_BROKER_ONLY: Final = "`penstock broker`, `up` and `doctor`."

_DATA_HOME: Final = "`$XDG_DATA_HOME/penstock`, else `~/.local/share/penstock`"


def page() -> str:
    fields = dict(_fields(Settings))
    sections: dict[str, list[str]] = {}
    for key, setting in list_settings().items():
        section = key.rpartition(".")[0]
        sections.setdefault(section, []).append(_row(setting, fields[key]))
    parts = [_HEAD]
    for section, rows in sections.items():
        title = f"`[{section}]`" if section else "At the top"
        used_by = f"Used by: {_USED_BY.get(section, _BROKER_ONLY)}"
        table = ["| key | type | default | meaning |", "|---|---|---|---|", *rows]
        parts.append(f"## {title}\n\n{used_by}\n\n" + "\n".join(table) + "\n")
    return "\n".join(parts)


def _fields(model: type[Any], prefix: str = "") -> list[tuple[str, tuple[str, str]]]:
    """Each key with its type and the values that it may have, as far as the type leaves it open."""
    found: list[tuple[str, tuple[str, str]]] = []
    listed = list_settings(model)
    types = field_types(model)
    for field in dataclasses.fields(model):
        kind = types[field.name]
        if dataclasses.is_dataclass(kind):
            found += _fields(kind, f"{prefix}{field.name}.")  # type: ignore[arg-type]
        else:
            shown = listed[field.name].printed
            found.append((prefix + field.name, (type_name(kind), _allowed(kind, field, shown))))
    return found


def type_name(kind: Any) -> str:
    """A type of a setting, for readers of a table."""
    if named := _TYPES.get(kind):
        return named
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return type_name(next(part for part in parts if part is not NoneType))
    if origin is Annotated:
        return type_name(parts[0])
    return "choice" if origin is Literal else _TYPES[origin]


_TYPES: Final[dict[Any, str]] = {
    Bytes: "size",
    Seconds: "duration",
    WholeSeconds: "duration",
    ShareOrBytes: "share or size",
    bool: "flag",
    int: "number",
    float: "number",
    str: "text",
    Path: "path",
    list: "list",
    tuple: "list",
    dict: "table",
    Mapping: "table",
}


def _row(setting: SettingInfo, about: tuple[str, str]) -> str:
    kind, allowed = about
    printed = setting.printed(setting.default)
    default = _DATA_HOME if setting.key == "data" else f"`{printed}`" if printed else ""
    name = setting.key.rpartition(".")[2]
    return f"| `{name}` | {kind} | {default} | {setting.description}{allowed} |"


def _allowed(kind: Any, field: dataclasses.Field[Any], shown: Callable[[Any], str]) -> str:
    if get_origin(kind) is Literal:
        return " One of " + ", ".join(f"`{choice}`" for choice in get_args(kind)) + "."
    limits = field_limits(field)
    parts: list[str] = []
    if limits.ge:
        parts.append(f"at least {shown(limits.ge)}")
    if limits.gt is not None:
        parts.append(f"more than {shown(limits.gt)}")
    if limits.le is not None:
        parts.append(f"at most {shown(limits.le)}")
    if limits.min_length is not None:
        parts.append("not empty")
    if limits.max_length is not None:
        parts.append(f"at most {limits.max_length} characters")
    limit = ", ".join(parts)
    return f" {limit[0].upper()}{limit[1:]}." if limit else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
