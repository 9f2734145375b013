"""Reads configuration files of Sarracenia, v2 and sr3, unchanged.

A line is an option and its value, and the order matters: `directory`, `mirror`, `strip`, `flatten`
and `filename` apply to the `accept` lines below them, `exchange` and `topicPrefix` to the
`subtopic` lines below them. `default.conf`, `admin.conf` and `COMPONENT.conf` are read before the
file; the directory of the file names the component. Base URLs and paths are joined, and a file with
another checksum is kept and announced with its own, as Sarracenia does.

`broker` and `queueName` apply to the `subtopic` lines below them, too: a configuration of sr3 may
consume from several brokers. With another `post_broker` posts go to both, each with the exchange,
topic prefix, format and base URL that stand above the next.

The lines are collected first, because they help to decide the dialect, which has the defaults.
Option names are compared without case, dashes and underscores. `config/options.py` lists what
becomes of each.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from random import SystemRandom
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_pump.config.dialect import Dialect, decide_dialect
from penstock_pump.config.options import (
    OPTIONS,
    ConfOption,
    OptionStatus,
    dialects_of,
    find_option,
    normalised_name,
)
from penstock_pump.config.settings import (
    Component,
    OptionNote,
    PostCopySettings,
    PumpSettings,
    defaults_of,
    settings_of,
)
from penstock_pump.config.values import MAX_SPLIT, flag, words
from penstock_pump.credentials import ANONYMOUS
from penstock_pump.names import subscribed_exchange

log = get_logger(__name__)

#: Options that apply to the lines below them, with their defaults.
DEFAULT_PLACEMENT: Final[Mapping[str, Any]] = {
    name: PumpSettings.model_fields[name].default
    for name in ("directory", "mirror", "strip", "flatten", "filename")
}
#: Options with paths, which may be below the home of the user.
_PATHS: Final = frozenset({"directory", "base_dir", "post_base_dir"})
#: What sr3 takes for no value, but in these options.
_UNSET: Final = frozenset({"none", "off", "false"})
_WORDS: Final = frozenset({"proxy", "strip", "suppress_basis", "post_topic_prefix"})
_INLINE_BYTES: Final = {Dialect.V2: 1024, Dialect.SR3: 4096}
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
#: Variables that are replaced when a post is placed, not when the file is read.
_DEFERRED: Final = frozenset(
    {"BD", "PBD", "DR", "PDR", "SOURCE", "BUP", "BUPL", "SS", "QUEUESHARE", "RAND8"}
    | {"YYYYMMDD", "YYYY", "MM", "DD", "HH", "JJJ", "T1", "T2", "A1", "A2", "ii", "CCCC"}
    | {"YY", "GG", "Gg", "BBB", "RYYYY", "RMM", "RDD", "RHH", "RMN", "RSS"}
    | {"baseUrlPath", "baseUrlPathLast"}
)
#: What may follow the pattern of an `accept`.
_NAMING: Final = re.compile(
    r"((WHATFN|HEADFN|SENDER|NONE|NONESENDER|TIME|(SATNET|DESTFN|DESTFNSCRIPT)=[^:]+)(:|$))+"
)
#: `declare` gives a variable a value.
_VARIABLES: Final = frozenset({"env", "envvar", "var", "value"})
_AGE: Final = re.compile(r"\d+(\.\d+)?[smhdw]?", re.IGNORECASE)
_MAX_INCLUDES: Final = 10
_ALIASES: Final = {"cpost": "post", "cpump": "shovel"}


@dataclass(frozen=True, slots=True)
class ConfLine:
    where: str
    option: str
    value: str
    is_shared: bool  #: from a file of all configurations

    @property
    def name(self) -> str:
        return normalised_name(self.option)


@dataclass(slots=True)
class _ConfReader:
    component: Component
    dialect: Dialect
    given: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, Any] = field(default_factory=dict)  #: at the current line
    rules: list[dict[str, Any]] = field(default_factory=list)
    arguments: list[ConfLine] = field(default_factory=list)  #: rules with words for plugins
    bindings: list[dict[str, Any]] = field(default_factory=list)
    plugins: list[str] = field(default_factory=list)
    plugin_options: dict[str, list[str]] = field(default_factory=dict)
    unknown: list[ConfLine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[OptionNote] = field(default_factory=list)
    post_broker: str | None = None  #: of the configuration itself
    post_copies: list[dict[str, Any]] = field(default_factory=list)
    queue_share: str = ""
    inlines: bool = False
    unused: dict[str, Any] = field(default_factory=dict)  #: settings of other components

    def note(self, line: ConfLine, reason: str) -> None:
        """A file of all configurations has options of other components."""
        if not line.is_shared:
            log.warning(
                "option without effect", where=line.where, option=line.option, reason=reason
            )
            self.notes.append(OptionNote(line.where, line.option, reason))


def read_conf(
    path: Path,
    component: Component | None = None,
    flags: Mapping[str, Any] | None = None,
    options: Sequence[tuple[str, str]] = (),
) -> PumpSettings:
    """`flags` are settings; `options` are lines that come after those of the file."""
    component = component or component_of(path)
    lines = [*_all_lines(path, component), *_option_lines(options)]
    return _read(path, component, lines, flags or {})


def read_options(
    component: Component, options: Sequence[tuple[str, str]], home: Path
) -> PumpSettings:
    """The settings of a command line without a file; `home` has the credentials."""
    lines = list(_option_lines(options))
    return _read(home / component / "default.conf", component, lines, {})


def _option_lines(options: Sequence[tuple[str, str]]) -> Iterator[ConfLine]:
    return (ConfLine("command line", name, value, False) for name, value in options)


def _read(
    path: Path, component: Component, lines: Sequence[ConfLine], overrides: Mapping[str, Any]
) -> PumpSettings:
    home, flags = path.parent.parent, dict(overrides)
    settings = [line.value for line in lines if line.name == "dialect"]
    chosen, reason = decide_dialect(
        path,
        flags.pop("dialect", settings[-1] if settings else None),
        ((line.option, dialects_of(line.option)) for line in lines if not line.is_shared),
    )
    defaults = {**DEFAULT_PLACEMENT, **defaults_of(chosen, component)}
    placement = {name: defaults[name] for name in DEFAULT_PLACEMENT}
    share = f"{os.environ.get('USER', 'user')}_{_host_name()}_${{RAND8}}"
    reader = _ConfReader(component, chosen, placement=placement, queue_share=share)
    for line in lines:
        try:
            _apply_option(line, reader)
        except (ConfigurationError, ValueError) as error:
            reader.problems.append(f"{line.where}: {line.option}: {error}")
    _report_unknown(reader)
    _check_arguments(reader)
    if reader.problems:
        raise ConfigurationError("\n".join(reader.problems))
    given = {
        "component": component,
        "dialect": chosen,
        "name": path.stem,
        "join": True,
        "strict_sums": False,
        **reader.given,
    }
    if reader.rules:
        given["select"] = reader.rules
    limit = given.pop("inline", _INLINE_BYTES[chosen])
    if reader.inlines:
        given["inline"] = limit
    if reader.bindings and "subtopic" not in flags:
        bound = [_overridden(each, flags, given, f"{path}: ") for each in reader.bindings]
        given["bindings"] = _of_one_queue(bound, given)
    for named in (given, *given.get("bindings", ())):
        if named.get("queue") is not None:
            named["queue"] = named["queue"].replace("${QUEUESHARE}", reader.queue_share)
    if (
        component is Component.WINNOW
        and chosen is Dialect.V2
        and int(given.get("instances", 1)) > 1
    ):
        given.setdefault("exchange_split", MAX_SPLIT)
    if reader.post_copies:
        given["post_copies"] = reader.post_copies
    if reader.plugins:
        given["plugins"] = reader.plugins
        listed = given.get("plugin_path", [])
        given["plugin_path"] = [*listed, path.parent, home / "plugins"]
        given["plugin_options"] = reader.plugin_options
    credentials = home / "credentials.conf"
    if credentials.is_file():
        given["credentials"] = credentials
    found = settings_of({**given, **flags}, f"{path}: ")
    unused = _unused_settings(reader, {**given, **flags}, f"{path}: ")
    found.remember_file(reason, reader.notes, unused)
    return found


def _unused_settings(reader: _ConfReader, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What the component does not use, its plugins may read."""
    unused = {name: value for name, value in reader.unused.items() if name not in given}
    if not (unused and reader.plugins):
        return {}
    checked = settings_of({**given, **unused}, where)
    return {name: getattr(checked, name) for name in unused}


def component_of(path: Path) -> Component:
    """By the directory: `subscribe/weather.conf`."""
    folder = path.resolve().parent.name.removeprefix("sr_")
    try:
        return Component(_ALIASES.get(folder, folder))
    except ValueError:
        known = ", ".join(Component)
        raise ConfigurationError(
            f"{path}: cannot tell the component from the folder {folder!r}: it should be one of "
            f"{known}; or use --component"
        ) from None


def _all_lines(path: Path, component: Component) -> Iterator[ConfLine]:
    variables = {
        **os.environ,
        "HOSTNAME": _host_name(),
        "PROGRAM": component.value,
        "COMPONENT": component.value,
        "CONFIG": path.stem,
        "RANDID": f"{SystemRandom().randrange(16**4):04x}",
    }
    home = path.parent.parent
    for common in ("default.conf", "admin.conf", f"{component}.conf"):
        if (home / common).is_file():
            yield from _lines(home / common, variables, 0, is_shared=True)
    yield from _lines(path, variables, 0, is_shared=False)


def _lines(
    path: Path, variables: dict[str, str], depth: int, *, is_shared: bool
) -> Iterator[ConfLine]:
    if depth > _MAX_INCLUDES:
        raise ConfigurationError(f"{path}: files include each other")
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:  # not UTF-8, or no path
        raise ConfigurationError(f"{str(path)!r}: {error}") from None
    for number, line in enumerate(text.splitlines(), 1):
        option, _, value = line.strip().partition(" ")
        option, _, rest = option.partition("\t")
        value = _VARIABLE.sub(lambda found: _variable(found, variables), f"{rest} {value}".strip())
        if not option or option.startswith("#"):
            continue
        name = normalised_name(option)
        if name in ("include", "config"):
            included = _included(path, value)
            yield from _lines(included, variables, depth + 1, is_shared=is_shared)
        elif name == "declare" and value.split()[:1] and value.split()[0] in _VARIABLES:
            key, _, text = value.partition(" ")[2].strip().partition("=")
            variables[key.strip()] = text.strip()
        elif name == "declare" and value.split()[:1] in (["option"], ["o"]):
            option, _, text = value.partition(" ")[2].strip().partition(" ")
            yield ConfLine(f"{path}:{number}", option, text, is_shared)
        else:
            yield ConfLine(f"{path}:{number}", option, value, is_shared)


@cache
def _host_name() -> str:
    """As sr3 finds it: a queue keeps its name when the program is changed."""
    return socket.getfqdn().partition(".")[0]


def _included(path: Path, value: str) -> Path:
    """Beside the file, or in the directory of all configurations."""
    named = Path(value).expanduser()
    beside, above = path.parent / named, path.parent.parent / named
    try:
        return above if above.is_file() and not beside.is_file() else beside
    except OSError as error:  # a name that is too long
        raise ConfigurationError(f"{str(beside)!r}: {error.strerror}") from None


def _variable(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name = found[1]
    if name in _DEFERRED or name.isdigit():
        return found[0]
    return variables.get(name, found[0])


def _apply_option(line: ConfLine, reader: _ConfReader) -> None:
    option = find_option(line.option)
    if option is None:
        reader.unknown.append(line)
        return
    value = _with_users(line.value, reader)
    if option.status is OptionStatus.REFUSED:
        raise ConfigurationError(f"is refused: {option.note}")
    if option.status is OptionStatus.WITHOUT_EFFECT:
        option.value(value, reader.dialect)
        reader.note(line, option.note)
        reader.plugin_options[line.option] = [value]  # plugins may use it
        return
    if reader.component not in (*option.components, Component.FLOW):
        reader.note(line, f"{reader.component} does not use it")
        reader = _ConfReader(reader.component, reader.dialect, given=reader.unused)
    if _is_unset(option, value, reader.dialect):
        _unset(option, reader)
        return
    if option.setting is None:
        _apply_special(option, line.option, value, reader)
        if option.name in ("accept", "reject") and "arguments" in reader.rules[-1]:
            reader.arguments.append(line)
        return
    setting = option.setting
    if setting == "exchange" and reader.component in (Component.POST, Component.WATCH):
        setting = "post_exchange"
    if setting in _PATHS:
        value = os.path.expanduser(value)  # noqa: PTH111 - "." stays as it is
    if setting in ("broker", "post_broker", "report_broker"):
        value = _with_anonymous(value)
    _note_several(line, setting, value, reader)
    reader.given[setting] = option.value(value, reader.dialect)
    if setting in ("topic_prefix", "post_topic_prefix"):
        reader.given[setting] = _topic_prefix(reader.given[setting])
    if setting in DEFAULT_PLACEMENT:
        reader.placement[setting] = reader.given[setting]
    if setting == "filename":
        _add_script(value, reader)
    if setting == "events" and {"mkdir", "rmdir"} & set(str(reader.given[setting]).split()):
        reader.given["folders"] = True


def _is_unset(option: ConfOption, value: str, dialect: Dialect) -> bool:
    """`filename NONE` is a way to name files."""
    if option.name == "filename":
        return value == "None"
    if dialect is not Dialect.SR3 or option.parse is not str or option.setting in _WORDS:
        return False
    is_text = option.setting is not None or option.name in ("sendTo", "flowMain")
    return is_text and value.lower() in _UNSET


def _unset(option: ConfOption, reader: _ConfReader) -> None:
    setting = option.setting or ("flow_main" if option.name == "flowMain" else "destination")
    reader.given.pop(setting, None)
    if setting in DEFAULT_PLACEMENT:
        defaults = {**DEFAULT_PLACEMENT, **defaults_of(reader.dialect, reader.component)}
        reader.placement[setting] = defaults[setting]


def _topic_prefix(value: Any) -> Any:
    """sr3 also separates words by slashes. Without a prefix a subtopic is a whole topic."""
    if isinstance(value, list):
        return [_topic_prefix(each) for each in value]
    return "" if value.lower() in _UNSET else value.replace("/", ".")


def _with_anonymous(url: str) -> str:
    """Sarracenia signs in at public brokers as a user of this name."""
    scheme, separator, rest = url.partition("://")
    if not scheme.startswith("amqp") or not rest or "@" in rest.partition("/")[0]:
        return url
    return f"{scheme}{separator}{ANONYMOUS}@{rest}"


#: Settings of one queue or one broker: they have one value in a configuration.
_OF_QUEUES: Final = frozenset({"expire", "prefetch", "bind_queue"})


def _note_several(line: ConfLine, setting: str, value: str, reader: _ConfReader) -> None:
    """What would change the meaning of lines above it."""
    if line.is_shared:
        return
    if setting in _OF_QUEUES and reader.bindings:
        reader.note(line, "applies to all queues of the configuration")
    if setting == "post_broker":
        if reader.post_broker not in (None, value):
            reader.post_copies.append(
                {
                    key: reader.given[f"post_{key}"]
                    for key in PostCopySettings.model_fields
                    if f"post_{key}" in reader.given
                }
            )
        reader.post_broker = value


def _apply_special(option: ConfOption, spelled: str, value: str, reader: _ConfReader) -> None:
    name, given = normalised_name(option.name), reader.given
    match name:
        case "accept" | "reject":
            _add_rule(name, value, reader)
        case "subtopic":
            _add_subtopic(value, reader)
        case "topic":
            _add_subtopic(value, reader, [""])
        case "path":
            given.setdefault("path", []).extend(_paths(value, reader))
        case "inline":
            reader.inlines = flag(value)
        case "queueshare":
            reader.queue_share = value
        case "inflight" if _AGE.fullmatch(value):  # for posters: the minimum age of a file
            given["min_age"] = value
        case "inflight":
            given["inflight"] = value
        case "declare" if value.split()[:1] == ["exchange"]:
            given.setdefault("exchanges", []).append(value.split()[-1])
        case "declare":
            log.info("users belong to the broker", declare=value)
        case "debug":
            given["log_level"] = "debug" if flag(value) else given.get("log_level")
        case "header":
            key, _, text = value.partition("=")
            given.setdefault("headers", {})[key.strip()] = text.strip()
        case "nofsetstat" if reader.component is Component.SENDER:
            given["preserve_mode"] = given["preserve_time"] = not flag(value)
        case "queuetype":
            given.setdefault("queue_arguments", {})["x-queue-type"] = value
        case "amqpqueueargs":
            pairs = (each.partition("=") for each in words(value))
            given.setdefault("queue_arguments", {}).update({key: text for key, _, text in pairs})
        case "sendto":
            key = "poll_url" if reader.component is Component.POLL else "destination"
            given[key] = value
        case "flowmain":
            given["flow_main"] = value
        case "set":
            target, _, text = value.partition(" ")
            reader.plugin_options.setdefault(target.rpartition(".")[2], []).append(text.strip())
        case "callbackprepend":
            reader.plugins.insert(0, f"callback {value}")
        case "callback":
            reader.plugins.append(f"callback {value}")
        case _ if name.startswith(("on", "do")):  # and v2's `plugin`
            reader.plugins.append(f"{spelled} {value}")


def _paths(value: str, reader: _ConfReader) -> list[str]:
    """In sr3 a line has one path, which may have blanks. A path of a poll is the server's."""
    found = [value] if reader.dialect is Dialect.SR3 else value.split()
    if reader.component is Component.POLL:
        return found
    return [os.path.expanduser(each) for each in found]  # noqa: PTH111


def _add_script(naming: str, reader: _ConfReader) -> None:
    """`DESTFNSCRIPT=plugin` loads the plugin, too."""
    word, _, name = naming.partition("=")
    if word == "DESTFNSCRIPT" and f"callback {name}" not in reader.plugins:
        reader.plugins.append(f"callback {name}")


def _add_rule(word: str, value: str, reader: _ConfReader) -> None:
    pattern, *arguments = value.split() or [".*"]
    rule = {word: pattern, **reader.placement}
    if arguments and _NAMING.fullmatch(arguments[0]):
        rule["filename"] = arguments.pop(0)
        _add_script(rule["filename"], reader)
    if arguments:
        rule["arguments"] = arguments
    reader.rules.append(rule)


def _check_arguments(reader: _ConfReader) -> None:
    """What follows a pattern and is no naming is for plugins; otherwise it is a mistake."""
    for line in [] if reader.plugins else reader.arguments:
        reader.problems.append(
            f"{line.where}: {line.option} {line.value}: what is after the pattern should be "
            "WHATFN, HEADFN, SENDER, NONE, NONESENDER, TIME, DESTFN=name or DESTFNSCRIPT=plugin"
        )


def _add_subtopic(value: str, reader: _ConfReader, prefixes: Sequence[str] = ()) -> None:
    if reader.component in (Component.POST, Component.WATCH, Component.POLL):
        reader.given["post_subtopic"] = value
        return
    found = {key: reader.given.get(key) for key in ("broker", "queue", "exchange")}
    for prefix in prefixes or reader.given.get("topic_prefix", [None]):
        reader.bindings.append({**found, "subtopic": value or "#", "topic_prefix": prefix})


def _of_one_queue(bindings: list[dict[str, Any]], given: dict[str, Any]) -> list[dict[str, Any]]:
    """Bindings of one broker and one queue do not name them. Otherwise each has its own, and those
    above the first `queueName` a queue with the usual name."""
    one_broker = len({each["broker"] for each in bindings}) == 1
    one_queue = len({each["queue"] for each in bindings} - {None}) < 2
    if one_broker and one_queue:
        return [{**each, "broker": None, "queue": None} for each in bindings]
    given.pop("queue", None)
    return bindings


def _overridden(
    binding: dict[str, Any], flags: Mapping[str, Any], given: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Flags override what stands above a subtopic."""
    own = {key: None if key in flags else value for key, value in binding.items()}
    own["broker"] = own["broker"] or flags.get("broker", given.get("broker"))
    if own["exchange"] is None:
        named = {**given, "exchange": flags.get("exchange"), "exchange_split": 0}
        if own["broker"] is not None:
            named["broker"] = own["broker"]
        own["exchange"] = subscribed_exchange(settings_of(named, where))
    return own


def _with_users(value: str, reader: _ConfReader) -> str:
    for variable, setting in (("BROKER_USER", "broker"), ("POST_BROKER_USER", "post_broker")):
        if "${" + variable + "}" in value:
            user = urlsplit(reader.given.get(setting, "")).username or ""
            value = value.replace("${" + variable + "}", user)
    if reader.dialect is Dialect.SR3 and "source" in reader.given:
        value = value.replace("${SOURCE}", reader.given["source"])
    return value


def _report_unknown(reader: _ConfReader) -> None:
    """Plugins may have options of their own; otherwise an unknown option is a mistake."""
    for line in reader.unknown:
        if reader.plugins:
            reader.plugin_options.setdefault(line.option, []).append(line.value)
            continue
        known = get_close_matches(line.name, OPTIONS, 1)
        hint = f"; did you mean {OPTIONS[known[0]].name}?" if known else ""
        reader.note(line, f"unknown option{hint}")
