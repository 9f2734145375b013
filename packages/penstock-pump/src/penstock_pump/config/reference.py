"""The page of all options, `docs/pump-options.md`: `python -m penstock_pump.config.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from penstock_pump.config.dialect import Dialect
from penstock_pump.config.options import ALL, TABLE, ConfOption, OptionStatus
from penstock_pump.config.settings import Component, PumpSettings, defaults_of

#: Lines are as long as those of the other pages.
_HEAD: Final = (
    "# Options of Sarracenia\n\n"
    "Every option of Sarracenia v2 and sr3 in a `.conf` file is *honoured*, *refused* with an error"
    " that names the\nalternative, or *without effect*, with a warning that gives the reason. This"
    " page is generated from the table that the\nconfigurations are read with"
    " (`python -m penstock_pump.config.reference`). [The pump](pump.md) explains the settings.\n\n"
    "Names are compared without case, dashes and underscores. An option that is not listed is an"
    " option of a plugin, if the\nconfiguration names plugins. Otherwise it is reported with a"
    " warning.\n\n"
    "`penstock pump sanity` shows for each configuration whose defaults it has. The first of these"
    " decides:\n\n"
    "1. the option `dialect v2` or `dialect sr3`;\n"
    "2. the folder: `sr3/subscribe/weather.conf`, or `sarra/subscribe/weather.conf` for v2;\n"
    "3. an option that only one of the two spells so, as `topicPrefix` (sr3) or `topic_prefix`"
    " (v2);\n"
    "4. otherwise it is sr3.\n"
)


def options_page() -> str:
    return "\n".join((_HEAD, *_honoured(), *_others()))


def _honoured() -> Iterator[str]:
    yield "## Honoured\n"
    yield "| option | other names | type | setting | default v2 | default sr3 | components |"
    yield "|---|---|---|---|---|---|---|"
    for option in _with(OptionStatus.HONOURED):
        others = " ".join(f"`{name}`" for name in option.names[1:])
        setting = f"`{option.setting}`" if option.setting else ""
        v2, sr3 = (_default(option, dialect) for dialect in Dialect)
        used = "all" if set(option.components) == set(ALL) else " ".join(option.components)
        yield f"| `{option.name}` | {others} | {option.type} | {setting} | {v2} | {sr3} | {used} |"


def _others() -> Iterator[str]:
    for title, status in (
        ("Refused", OptionStatus.REFUSED),
        ("Without effect", OptionStatus.WITHOUT_EFFECT),
    ):
        yield f"\n## {title}\n"
        yield "In all components.\n"
        reason = "instead" if status is OptionStatus.REFUSED else "reason"
        yield f"| options | type | {reason} |"
        yield "|---|---|---|"
        for option in _with(status):
            names = " ".join(f"`{name}`" for name in option.names)
            yield f"| {names} | {option.type} | {option.note} |"
    yield ""


def _with(status: OptionStatus) -> Iterator[ConfOption]:
    return (option for option in TABLE if option.status is status)


def _default(option: ConfOption, dialect: Dialect) -> str:
    """The default of the first component, and of those that differ from it."""
    if option.setting is None:
        return ""
    found: dict[str, list[Component]] = {}
    for component in option.components:
        given = defaults_of(dialect, component)
        default = PumpSettings.model_fields[option.setting].get_default(call_default_factory=True)
        found.setdefault(_text(given.get(option.setting, default)), []).append(component)
    texts = sorted(found, key=lambda text: -len(found[text]))
    first, *others = texts
    exceptions = "".join(f"; {' '.join(found[text])}: {_code(text)}" for text in others)
    return _code(first) + exceptions


def _code(text: str) -> str:
    return f"`{text}`" if text else "–"


def _text(value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, frozenset):
        return " ".join(sorted(each.value for each in value))
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


if __name__ == "__main__":
    sys.stdout.write(options_page())
