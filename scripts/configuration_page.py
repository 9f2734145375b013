"""Writes `docs/configuration.md` from the models, so that the page cannot say what is not so.

`python -m scripts.configuration_page` (or `make docs`) writes it; a test compares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from penstock.core.config import SettingInfo, Settings, list_settings
from penstock.core.settings_model import field_limits, field_types

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

`penstock config` shows all settings in force and where each came from, `--changed` only those that
are not as they come, `--explain` what each is for, `--json` the same for programs:

```console
$ PENSTOCK_BROKER__HEARTBEAT=30s penstock config --changed --set log.level=debug
key               value  source
log.level         debug  flag --set
broker.heartbeat  30s    environment PENSTOCK_BROKER__HEARTBEAT
```

What cannot be used is refused before anything starts, with the place, the key, and what is allowed,
all mistakes at once and exit status 2:

```console
$ penstock config --set broker.heartbeet=1 --set log.level=loud
penstock: flag --set: log.level = 'loud': should be 'debug', 'info', 'warning' or 'error' (the \
lowest severity that is logged)
penstock: flag --set: unknown setting broker.heartbeet; did you mean broker.heartbeat?
```

Sizes are written as `65536`, `64KiB`, `16MiB`, `2GB`; durations as `10s`, `500ms`, `5m`, `2h`,
`1d`, or a number of seconds; lists in the environment and in flags with commas between, or as JSON.
"""

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
        table = ["| key | default | meaning |", "|---|---|---|", *rows]
        parts.append(f"## {title}\n\n" + "\n".join(table) + "\n")
    return "\n".join(parts)


def _fields(model: type[Any], prefix: str = "") -> list[tuple[str, str]]:
    """Each key with the values that it may have, where its type does not say it already."""
    found: list[tuple[str, str]] = []
    listed = list_settings(model)
    types = field_types(model)
    for field in dataclasses.fields(model):
        kind = types[field.name]
        if dataclasses.is_dataclass(kind):
            found += _fields(kind, f"{prefix}{field.name}.")  # type: ignore[arg-type]
        else:
            shown = listed[field.name].printed
            found.append((prefix + field.name, _allowed(kind, field, shown)))
    return found


def _row(setting: SettingInfo, allowed: str) -> str:
    printed = setting.printed(setting.default)
    default = _DATA_HOME if setting.key == "data" else f"`{printed}`" if printed else ""
    name = setting.key.rpartition(".")[2]
    return f"| `{name}` | {default} | {setting.description}{allowed} |"


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
    said = ", ".join(parts)
    return f" {said[0].upper()}{said[1:]}." if said else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
