"""Commands of a page, and the outputs that it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator


def pattern(expected: str, *, any_number: bool = False) -> str:
    """A regular expression for an output: `…` is any text, a line of it any lines or none."""
    expected = re.sub(r"\n…(?=\n|$)", "…", expected)
    if not any_number:
        return ".*".join(re.escape(part) for part in expected.split("…"))
    parts = re.split(r"(…|\s+|[━─┏┳┓┡╇┩└┴┘]{3,}|[\w.,:+-]*\d[\w.,:+-]*)", expected)
    words = (_word_pattern(word) for word in parts)
    return "".join(words)


def _word_pattern(word: str) -> str:
    if word == "…":
        return ".*"
    if word.isspace():
        return r"\s+"
    if re.fullmatch(r"[━─┏┳┓┡╇┩└┴┘]+", word):  # a column may be wider or narrower
        return "[━─┏┳┓┡╇┩└┴┘]+"
    if re.fullmatch(r"[0-9a-f]{12,}", word):
        return r"[0-9a-f]+"
    return re.sub(r"\d(?:[\d,.]*\d)?", lambda _: r"-?\d(?:[\d,.]*\d)?", re.escape(word))


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Commands with their output. A backslash, a quote or a here-document continues a command."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.split("\n")
        size = 1
        while lines[size - 1].endswith("\\") or _has_open_quote("\n".join(lines[:size])):
            size += 1
        if ending := re.search(r"<<'?(\w+)'?", lines[0]):
            size = lines.index(ending[1]) + 1
        yield "\n".join(lines[:size]), "\n".join(lines[size:]).rstrip("\n")


def _has_open_quote(command: str) -> bool:
    bare = re.sub(r"\\.|\"(?:\\.|[^\"\\])*\"|'[^']*'|<<.*", "", command, flags=re.S)
    return "'" in bare or '"' in bare
