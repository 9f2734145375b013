"""The fenced blocks of the documentation, and what a test does with each.

A block of commands (`console`), of Python, TOML or JSON is run or read. So is the text
after a block of Python: it is what that block prints. `blocks.toml` has what a page needs to run,
names the tests that run blocks of a page themselves, and gives the reason for each text that is
neither a command nor a program.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.paths import DOCS, ROOT

PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("packages/*/README.md")],
)
RUN: Final = frozenset({"console", "python", "toml", "json"})
TEXT: Final = frozenset({"", "text", "html", "mermaid"})
_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n"
    r"(?P<text>.*?)^ *```",
    re.M | re.S,
)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    title: str
    text: str
    line: int
    is_output: bool  # what the Python before it prints

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]


@dataclass(frozen=True)
class PagePlan:
    """What `blocks.toml` says about a page."""

    group: str
    generated: str = ""  # the test that compares the page with the code
    is_slow: bool = False  # its group is one of the slow tests
    slow: list[str] = field(
        default_factory=list
    )  # beginnings of blocks: only the slow test runs these
    environment: dict[str, str] = field(default_factory=dict)  # of commands and programs
    prepare: str = ""  # a script that runs before there are servers
    terminals: list[str] = field(default_factory=list)  # servers that the page takes for granted
    slow_terminals: list[str] = field(default_factory=list)  # servers that the slow blocks need
    before: str = ""  # a script that prepares the home directory and the broker
    slow_before: str = ""  # another one, for the slow blocks
    after: str = ""  # a script that ends what commands have left running
    python: str = ""  # runs before the first block of Python
    any_number: bool = False  # figures of an output differ from run to run
    replace: dict[str, str] = field(default_factory=dict)
    # By the beginning of a block:
    run_by: dict[str, str] = field(default_factory=dict)  # the test that runs it
    shown: dict[str, str] = field(default_factory=dict)  # why it is neither command nor program
    parsed: dict[str, str] = field(default_factory=dict)  # takes hours: its arguments are read
    impossible: dict[str, str] = field(default_factory=dict)  # why no test can run it

    def reason(self, block: Block) -> str:
        """Why a block does not run here, or nothing."""
        reasons = self.run_by | self.shown | self.impossible
        found = [why for start, why in reasons.items() if block.text.startswith(start)]
        return self.generated or (found[0] if found else "")

    def is_slow_block(self, block: Block) -> bool:
        return block.text.startswith(tuple(self.slow))

    def is_parsed(self, block: Block) -> bool:
        return block.text.startswith(tuple(self.parsed))

    @property
    def runs(self) -> list[bool]:
        """Is the run slow: for each run of the page."""
        return (
            []
            if self.generated
            else [True]
            if self.is_slow
            else [False, True][: 1 + bool(self.slow)]
        )


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    before = None
    for found in _BLOCK.finditer(text):
        between = text[before.end() : found.start()] if before else ""
        after_python = before is not None and before["language"] == "python"
        size = len(found["indent"])
        yield Block(
            found["language"],
            found["title"] or "",
            "".join(line[size:] or "\n" for line in found["text"].splitlines(keepends=True)),
            text.count("\n", 0, found.start()) + 1,
            not found["language"] and after_python and "\n#" not in between,
        )
        before = found


def _alphabetical_group(page: Path) -> str:
    """A few groups of similar size, which run at the same time."""
    if page.name == "README.md":
        return "readme"
    return next(group for group in ("a-b", "c-f", "g-o", "p-z") if page.name[0] <= group[-1])


def plans() -> dict[Path, PagePlan]:
    written = tomllib.loads((Path(__file__).parent / "blocks.toml").read_text())
    found = {}
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        own = page.stem if page.parent.name == "tutorials" else _alphabetical_group(page)
        found[page] = PagePlan(**{"group": own} | written.pop(name, {}))
    assert not written, f"blocks.toml names pages that do not exist: {sorted(written)}"
    return found
