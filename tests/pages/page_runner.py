"""Runs the blocks of pages, and compares what they print with the page.

- A block with `title="NAME.EXT"` is a file of that name.
- A `console` block is commands, each after `$ `, with their output.
- A `console` block with `title="terminal N"` is one command that keeps running. The page continues
  when its first line, or `… ready: …`, is printed. At the end Ctrl-C stops it, and its output is
  compared, with or without what it prints then. If the block has a line `^C`, what is before it is
  awaited.
- So is a command that ends with ` &`. It may print more than the page shows.
- A `python` block runs in the names of the blocks before it. It may await. What it prints is in
  comments behind `print(…)`, or in the block of text that follows. It ends when it has printed it.
- A `toml` or `json` block is read by the program it is for (`file_formats.py`).

In an output, `…` stands for any text; on pages with `any_number`, a number or an id for any other
and a space for several. A command that asks for a password gets one, and one with the prompt
`NAME >>> ` the text behind it. A page runs in an empty home directory and in a network of its own,
so that every server has its default port.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock_pump.config.sarracenia import read_conf
from tests.pages.command_server import install_programs, serve_commands
from tests.pages.file_formats import check_file
from tests.pages.page import Block, PagePlan, blocks, plans
from tests.paths import ROOT

SECONDS: Final = 300.0
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_PRINTED: Final = re.compile(r"^ *print\(.*\)  +# (.+)$", re.M)


class Mismatch(AssertionError):
    """The page says something else than the command."""


class Terminal:
    """A command in a terminal of its own, and what it prints."""

    def __init__(
        self, command: str, expected: str, process: subprocess.Popen[bytes], screen: int
    ) -> None:
        self.command = command
        self.expected = expected
        self.process = process
        self.before_end: str | None = None  # what it printed before Ctrl-C
        self.reader = threading.Thread(target=self._read, daemon=True)
        self._screen = screen
        self._printed = bytearray()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the last process of the terminal has ended
            while some := os.read(self._screen, 65536):
                self._printed += some

    @property
    def text(self) -> str:
        return _COLOURS.sub("", self._printed.decode(errors="replace")).replace("\r\n", "\n")


@dataclass
class PageRunner:
    home: Path
    plan: PagePlan
    programs: Path
    terminals: list[Terminal] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    def run(self, page: Path) -> int:
        """The number of commands and blocks that ran."""
        count = 0
        os.chdir(self.home)
        self.loop = asyncio.new_event_loop()
        try:
            for command in self.plan.terminals:
                self._open_terminal(command, "…ready…")
            if self.plan.before:
                self._run(self.plan.before, check=True)
            found = list(blocks(page))
            given: dict[str, Any] = {}
            for place, block in enumerate(found):
                if not self.plan.reason(block):
                    after = found[place + 1] if place + 1 < len(found) else None
                    if block.language == "python" and self.plan.python and not given:
                        self._run_python(self.plan.python)
                        given = dict(self.names)
                    self.names |= given
                    try:
                        count += self._run_block(block, after)
                    except Exception as error:
                        error.add_note(f"{page}:{block.line}")
                        raise
        finally:
            self._close_loop()
            self._close_terminals()
        for terminal in self.terminals:
            terminal.reader.join(10)
            if terminal.before_end is None or not self._matches(
                terminal.expected, terminal.before_end
            ):
                self._compare(f"$ {terminal.command}", terminal.expected, terminal.text)
        return count

    def _run_block(self, block: Block, after: Block | None) -> int:
        text = self._replaced(block.text)
        if block.title and "." in block.title:
            path = self.home / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.suffix == ".conf":
                read_conf(path)
                return 1
        if block.language == "console":
            found = list(commands(text))
            if block.title:
                [(command, expected)] = found
                self._open_terminal(command, expected)
            else:
                for command, expected in found:
                    typed = re.findall(r"^\w+ >>> (.*\n?)", expected, re.M)
                    if typed:
                        command = f"{command} <<'TYPED'\n{''.join(typed)}\nTYPED"
                        expected = re.sub(r"^\w+ >>> .*\n?", "", expected, flags=re.M)
                    if command.endswith(" &"):
                        self._open_terminal(command[:-2], (expected or "…") + "…")
                        continue
                    run = self._answer if expected.startswith("Password:") else self._run
                    self._compare(f"$ {command}", expected, run(command))
            return len(found)
        if block.language == "python" and not block.title:
            follows = after is not None and after.is_output and not self.plan.reason(after)
            output = after.text if after and follows else "\n".join(_PRINTED.findall(text))
            self._run_python(text, self._replaced(output))
            return 1
        if block.language in ("toml", "json"):
            check_file(block.language, text, self.home)
            return 1
        return 0

    def _matches(self, expected: str, found: str) -> bool:
        found = "\n".join(line.rstrip() for line in found.strip().splitlines())
        wanted = pattern(expected.strip(), any_number=self.plan.any_number)
        return re.fullmatch(wanted, found, re.S) is not None

    def _compare(self, what: str, expected: str, found: str) -> None:
        if not self._matches(expected, found):
            raise Mismatch(f"{what}\nthe page says:\n{expected}\nprinted:\n{found}")

    def _replaced(self, text: str) -> str:
        for old, new in self.plan.replace.items():
            text = text.replace(old, new)
        return text

    def _run_python(self, text: str, expected: str = "") -> None:
        code = compile(text, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            found = eval(code, self.names)
            if inspect.iscoroutine(found):
                self.loop.run_until_complete(self._wait_for(found, expected, printed))
        if expected:
            self._compare(text, expected, printed.getvalue())

    async def _wait_for(
        self, running: Coroutine[Any, Any, None], expected: str, printed: io.StringIO
    ) -> None:
        task = asyncio.create_task(running)
        async with asyncio.timeout(SECONDS):
            while not task.done():
                await asyncio.wait([task], timeout=0.05)
                if expected and self._matches(expected, printed.getvalue()):
                    await asyncio.wait([task], timeout=1)  # it may close what it has opened
                    task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def _environment(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("LANG", "JAVA_HOME") if key in os.environ}
        python = Path(sys.executable).parent
        path = f"{self.programs}:{python}:{os.environ['PATH']}:/usr/sbin"
        own = {
            "HOME": str(self.home),
            "PATH": path,
            "COLUMNS": "100",
            "PENSTOCK_LOG__LEVEL": "error",
        }
        return kept | own

    def _run(self, command: str, *, check: bool = False) -> str:
        done = subprocess.run(
            ["bash", "-c", f"set -e\n{command}" if check else command],
            cwd=self.home,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
        if check and done.returncode:
            raise Mismatch(f"{command}\n{done.stdout.decode()}")
        return done.stdout.decode()

    def _answer(self, command: str) -> str:
        """Run a command that asks for a password."""
        screen, inside = pty.openpty()
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.home,
            env=self._environment() | {"TERM": "dumb"},
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        terminal = Terminal(command, "", process, screen)
        terminal.reader.start()
        answered = 0
        deadline = time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if terminal.text.count(": ") > answered:  # the blank comes when echo is off
                os.write(screen, b"a long password\n")
                answered += 1
            time.sleep(0.02)
        terminal.reader.join(10)
        return terminal.text

    def _open_terminal(self, command: str, expected: str) -> None:
        screen, inside = pty.openpty()
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.home,
            env=self._environment() | {"TERM": "dumb"},
            stdout=inside,
            stderr=inside,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(inside)
        terminal = Terminal(command, expected, process, screen)
        terminal.reader.start()
        self.terminals.append(terminal)
        lines = expected.split("\n")
        ready = next((number for number, line in enumerate(lines) if " ready: " in line), 0)
        self._await(terminal, "\n".join(lines[: ready + 1]))

    def _await(self, terminal: Terminal, expected: str) -> None:
        deadline = time.monotonic() + SECONDS
        wanted = pattern(expected, any_number=self.plan.any_number)
        while not terminal.text.strip() or not re.search(wanted, terminal.text):
            if terminal.process.poll() is not None or time.monotonic() > deadline:
                raise Mismatch(f"$ {terminal.command}\nprinted:\n{terminal.text}")
            time.sleep(0.05)

    def _close_loop(self) -> None:
        """Programs of the page may leave a connection open."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _close_terminals(self) -> None:
        for terminal in reversed(self.terminals):
            if terminal.process.poll() is None:
                before, stopped, after = f"{terminal.expected}\n".partition("\n^C\n")
                if stopped:
                    self._await(terminal, before)
                    terminal.expected = f"{before}\n{after}"
                terminal.before_end = terminal.text
                os.killpg(terminal.process.pid, signal.SIGINT)
                try:
                    terminal.process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(terminal.process.pid, signal.SIGKILL)
                    terminal.process.wait()


def pattern(expected: str, *, any_number: bool = False) -> str:
    """A regular expression for an output: `…` is any text."""
    if not any_number:
        return ".*".join(re.escape(part) for part in expected.split("…"))
    words = (_word_pattern(word) for word in re.split(r"(…|\s+|[\w.,:+-]*\d[\w.,:+-]*)", expected))
    return "".join(words)


def _word_pattern(word: str) -> str:
    if word == "…":
        return ".*"
    if word.isspace():
        return r"\s+"
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


def own_network() -> list[str]:
    """The words before a program that give it a network of its own, if that is possible."""
    if (
        shutil.which("unshare") is None
        or shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin") is None
    ):
        return []
    words = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    works = subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return (
        [*words, "sh", "-c", 'PATH=$PATH:/usr/sbin ip link set lo up && exec "$@"', "sh"]
        if works
        else []
    )


def run_pages(folder: Path, programs: Path, pages: list[Path]) -> int:
    """Run pages one after another; the number of those that are wrong."""
    planned = plans()
    wrong = 0
    for number, page in enumerate(pages):
        home = folder / f"home{number}"
        home.mkdir()
        started = time.monotonic()
        try:
            count = PageRunner(home, planned[page], programs).run(page)
        except Exception as error:
            wrong += 1
            places = " ".join(getattr(error, "__notes__", [str(page)]))
            told = error if isinstance(error, Mismatch) else traceback.format_exc()
            sys.stderr.write(f"=== {places}\n{told}\n")
        else:
            took = time.monotonic() - started
            sys.stdout.write(f"{page.relative_to(ROOT)}: {count} ran in {took:.1f} s\n")
        sys.stdout.flush()
    return wrong


def main(folder: Path, pages: list[Path]) -> int:
    programs = folder / "bin"
    programs.mkdir()
    address = folder / "commands"
    install_programs(programs, address)
    return serve_commands(address, lambda: run_pages(folder, programs, pages))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(each).resolve() for each in sys.argv[2:]]))
