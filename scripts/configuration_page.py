"""Writes `docs/configuration.md` from the models, so that the page cannot say what is not so.

`python -m scripts.configuration_page` (or `make docs`) writes it; a test compares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.core.config import SettingInfo, Settings, list_settings
from penstock.core.units import Unit

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
least severe events that are written)
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


def _fields(model: type[BaseModel], prefix: str = "") -> list[tuple[str, FieldInfo]]:
    found: list[tuple[str, FieldInfo]] = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _fields(field.annotation, f"{prefix}{name}.")
        else:
            found.append((prefix + name, field))
    return found


def _row(setting: SettingInfo, field: FieldInfo) -> str:
    printed = setting.printed(setting.default)
    default = _DATA_HOME if setting.key == "data" else f"`{printed}`" if printed else ""
    name = setting.key.rpartition(".")[2]
    meaning = setting.description + _allowed(field)
    return f"| `{name}` | {default} | {meaning} |"


def _allowed(field: FieldInfo) -> str:
    """The values a setting may have, where its type does not say it already."""
    if get_origin(field.annotation) is Literal:
        return " One of " + ", ".join(f"`{choice}`" for choice in get_args(field.annotation)) + "."
    unit = next((mark for mark in field.metadata if isinstance(mark, Unit)), None)

    def shown(value: Any) -> str:
        return unit.format(value) if unit else str(value)

    limits: list[str] = []
    for mark in field.metadata:
        if isinstance(mark, Ge) and mark.ge != 0:
            limits.append(f"at least {shown(mark.ge)}")
        elif isinstance(mark, Gt):
            limits.append(f"more than {shown(mark.gt)}")
        elif isinstance(mark, Le):
            limits.append(f"at most {shown(mark.le)}")
        elif isinstance(mark, MinLen):
            limits.append("not empty")
        elif isinstance(mark, MaxLen):
            limits.append(f"at most {mark.max_length} characters")
    said = ", ".join(limits)
    return f" {said[0].upper()}{said[1:]}." if said else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
