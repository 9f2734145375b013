"""Selection of posts by their URL, and placement of their files.

The first pattern that matches a URL decides. Placement is a pure function of the path and the
rules, applied in this order: `rename` replaces the path; `strip` removes leading directories, never
the name; `flatten` joins the rest to one name, in the same directory; `filename` replaces the name,
or picks fields of it; without `mirror` only the name is left; `directory`, with variables replaced,
is put before it. A path that would leave that directory is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock_pump.errors import OutsideDirectory

_VARIABLE: Final = re.compile(r"\$\{([^{}]+)\}")


_SCRIPT: Final = "DESTFNSCRIPT="
_SENDER: Final = "SENDER="
_SWITCH_FIELDS: Final = 6
#: A name that ends with its own time keeps it.
_OWN_TIME: Final = re.compile(r"2.{13}")


@dataclass(frozen=True, slots=True)
class Placement:
    directory: str = "."
    mirror: bool = False
    strip: int | re.Pattern[str] = 0
    flatten: str = "/"
    #: WHATFN, HEADFN, SENDER, NONE, TIME, DESTFN=name or DESTFNSCRIPT=plugin, joined by colons
    filename: str | None = None
    strip_short: bool = True  #: also paths with fewer directories than `strip`; sr3 leaves these


@dataclass(frozen=True, slots=True)
class PlacedPath:
    directory: str
    path: str
    script: str = ""  #: the plugin that names the file

    @property
    def full(self) -> str:
        return f"{self.directory}/{self.path}"


def place(
    path: str,
    rules: Placement,
    variables: Mapping[str, str] | None = None,
    groups: Sequence[str | None] = (),
) -> PlacedPath:
    """`groups` are those of the pattern that accepted the post's URL."""
    words = _stripped(_words(path), rules)
    if rules.flatten != "/":
        words[-1] = rules.flatten.join(words)
    script = ""
    if rules.filename is not None and rules.filename.startswith(_SCRIPT):
        script = rules.filename.removeprefix(_SCRIPT)
    elif rules.filename is not None:
        words[-1] = _named(words[-1], rules.filename, variables or {}, groups)
    if not rules.mirror:
        words = words[-1:]
    directory = expand(rules.directory, variables or {}, groups)
    return PlacedPath(directory, "/".join(words), script)


def expand(template: str, variables: Mapping[str, str], groups: Sequence[str | None] = ()) -> str:
    """Replaces `${…}`: numbers by groups, words by variables. What is unknown is left as it is, so
    that a mistake can be seen."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if not name.isdigit():
            return variables.get(name, found[0])
        group = groups[int(name)] if int(name) < len(groups) else None
        if group is None:
            return found[0]
        if ".." in group.split("/") or (found.start() == 0 and group.startswith("/")):
            raise OutsideDirectory(f"{group!r} would lead out of {template!r}")
        return group

    expanded = _VARIABLE.sub(value, template)
    return expanded.rstrip("/") or "/"


def _words(path: str) -> list[str]:
    words = [word for word in path.split("/") if word not in ("", ".")]
    if not words or ".." in words or "\0" in path:
        raise OutsideDirectory(f"{path[:120]!r} is not a path below a directory")
    return words


def _stripped(words: list[str], rules: Placement) -> list[str]:
    strip = rules.strip
    if isinstance(strip, int):
        if strip >= len(words) and not rules.strip_short:
            return words
        return words[min(strip, len(words) - 1) :]
    # What a pattern leaves may begin or end with a slash, and may be empty.
    rest = [word for word in strip.sub("", "/".join(words), count=1).split("/") if word]
    return _words("/".join(rest)) if rest else words[-1:]


def _named(
    name: str, filename: str, variables: Mapping[str, str], groups: Sequence[str | None]
) -> str:
    """Names of meteorological switches have fields separated by colons."""
    named, network, moment = name, "", ""
    fields = name.split(":")
    for word in filename.split(":"):
        if word == "WHATFN":
            named = fields[0] or name
        elif word == "HEADFN":
            named = "_".join(fields[0].split("_")[:2]) or name
        elif word == "SENDER":
            named = _sender(name) or named
        elif word in ("NONE", "NONESENDER"):
            named = _without_sender(name, keep=word == "NONESENDER") or name
        elif word.startswith("SATNET="):
            network += f":{word}"
        elif word == "TIME":
            own = fields[-1] if _OWN_TIME.fullmatch(fields[-1]) else None
            moment = f":{own or variables.get('%Y%m%d%H%M%S', '')}"
        else:
            named = expand(word.removeprefix("DESTFN="), variables, groups)
    return _words(named)[-1] + network + moment


def _sender(name: str) -> str:
    return name.partition(_SENDER)[2].partition(":")[0]


def _without_sender(name: str, *, keep: bool) -> str:
    """What is before the field SENDER, or up to it; of names without one the first five or six
    fields, as switches write them."""
    before, sender, rest = name.partition(_SENDER)
    fields = name.split(":")
    if sender:
        before += sender + rest.partition(":")[0] if keep else ""
    elif len(fields) >= _SWITCH_FIELDS:
        before = ":".join(fields[: _SWITCH_FIELDS if len(fields[4]) == 1 else _SWITCH_FIELDS - 1])
    return before.removesuffix(":")


@dataclass(frozen=True, slots=True)
class SelectionClause:
    accept: bool
    pattern: re.Pattern[str]
    placement: Placement


@dataclass(frozen=True, slots=True)
class SelectionMatch:
    placement: Placement
    groups: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class PostSelection:
    """Without clauses every post is accepted; otherwise `unmatched` decides what none matches."""

    clauses: Sequence[SelectionClause] = ()
    unmatched: bool = False
    placement: Placement = field(default_factory=Placement)
    groups_from_zero: bool = True  #: else group 0 is the whole match, as in sr3

    def choose(self, url: str) -> SelectionMatch | str:
        """The placement, or the reason of the rejection."""
        for clause in self.clauses:
            if (found := clause.pattern.match(url)) is not None:
                if clause.accept:
                    groups = (
                        found.groups() if self.groups_from_zero else (found[0], *found.groups())
                    )
                    return SelectionMatch(clause.placement, groups)
                return f"reject {clause.pattern.pattern}"
        if self.unmatched or not self.clauses:
            return SelectionMatch(self.placement)
        return "no accept matches"
