"""Runs the blocks of pages, and compares what they print with the page.

- A block with `title="NAME.EXT"` is a file of that name.
- A `console` block is commands, each after `$ `, with their output.
- A `console` block with `title="terminal N"` is one command that keeps running. The page continues
  when its first line, or `… ready: …`, is printed; if that line is `…`, when all is. At the end
  Ctrl-C stops it, and its output is compared, with or without what it prints then. An output that
  ends with a line `…` is awaited before that. So is what is before a line `^C`. A later block with
  the same title begins with `^C` and stops the command there.
- So is a command that ends with ` &`. It may print more than the page shows.
- A `python` block with `>>>` is a session of the interpreter.
- Any other runs in the names of the blocks before it. It may await. What it prints is in comments
  behind `print(…)`, or in the block of text that follows. It ends when it has printed it.
- A `toml` or `json` block is read by the program it is for (`file_formats.py`).

In an output, `…` stands for any text, and a line of it for any lines or none. On pages with
`any_number`, a number or an id stands for any other and a space for several. A command that asks
for a password gets one, and one with the prompt `NAME >>> ` the text behind it. A page runs in an
empty home directory and in a network of its own, so that every server has its default port.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from penstock_pump.config.sarracenia import read_conf
from tests.pages.command_server import install_programs, serve_commands
from tests.pages.file_formats import check_file
from tests.pages.outputs import commands, pattern
from tests.pages.page import Block, PagePlan, blocks, plans
from tests.pages.terminal import SECONDS, SLOW_SECONDS, Mismatch, Terminal
from tests.paths import ROOT

_EXPORT: Final = re.compile(r"export (\w+)=(.*)")
_PRINTED: Final = re.compile(r"^ *print\(.*\)  +# (.+)$", re.M)


@dataclass
class PageRunner:
    home: Path
    plan: PagePlan
    programs: Path
    slow: bool = False  # run the slow blocks too
    terminals: list[Terminal] = field(default_factory=list)
    exported: dict[str, str] = field(default_factory=dict)  # variables of the page's shell
    cleanup: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, page: Path) -> int:
        """The number of commands and blocks that ran."""
        count = 0
        os.chdir(self.home)
        self.names |= {"__name__": "page", "cleanup": self.cleanup}
        self.loop = asyncio.new_event_loop()
        try:
            self._run(self.plan.prepare, check=True)
            slow = self.plan.slow_terminals if self.slow else []
            for line in [*self.plan.terminals, *slow]:
                command, _, ready = line.partition(" => ")
                self._open_terminal(command, f"…{ready or 'ready'}…")
            for script in [self.plan.before, self.plan.slow_before if self.slow else ""]:
                self._run(script, check=True)
            found = list(blocks(page))
            given: dict[str, Any] = {}
            for place, block in enumerate(found):
                runs = self.slow or not self.plan.is_slow_block(block)
                if runs and not self.plan.reason(block):
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
            self._close()
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
        if self.plan.is_parsed(block):
            return self._parse(text)
        if block.language == "console":
            found = list(commands(text))
            if block.title and not found:
                self._stop_terminal(block.title, text)
            elif block.title:
                [(command, expected)] = found
                self._open_terminal(command, expected, block.title)
            else:
                for command, expected in found:
                    if exported := _EXPORT.fullmatch(command):
                        self.exported[exported[1]] = self._run(f"printf %s {exported[2]}")
                        continue
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
        if text.startswith(">>> "):
            return self._repeat_session(text)
        if block.language == "python" and not block.title:
            follows = after is not None and after.is_output and not self.plan.reason(after)
            output = after.text if after and follows else "\n".join(_PRINTED.findall(text))
            self._run_python(text, self._replaced(output))
            return 1
        if block.language in ("toml", "json"):
            check_file(block.language, text, self.home)
            return 1
        return 0

    def _parse(self, text: str) -> int:
        """Commands that take hours: their programs accept the arguments."""
        lines = [line.removeprefix("$ ").partition("#")[0] for line in text.splitlines()]
        accept = "python -m tests.pages.arguments"
        words = [line.replace("python -m", accept) for line in lines]
        self._run("\n".join([f"cd {ROOT}", *words]), check=True)
        return len(lines)

    def _repeat_session(self, text: str) -> int:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        test = doctest.DocTestParser().get_doctest(text, self.names, "session", None, None)
        printed: list[str] = []
        runner = doctest.DocTestRunner(optionflags=flags)
        if runner.run(test, out=printed.append, clear_globs=False).failed:
            raise Mismatch("".join(printed))
        self.names |= test.globs
        return len(test.examples)

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
            "REPOSITORY": str(ROOT),
            "VENV": sys.prefix,
        }
        planned = {
            name: value.replace("$REPOSITORY", str(ROOT))
            for name, value in self.plan.environment.items()
        }
        return kept | own | planned | self.exported

    def _run(self, command: str, *, check: bool = False) -> str:
        done = subprocess.run(
            ["bash", "-c", f"set -e\n{command}" if check else command],
            cwd=self.home,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=SLOW_SECONDS if self.slow else SECONDS,
            check=False,
        )
        if check and done.returncode:
            raise Mismatch(f"{command}\n{done.stdout.decode()}")
        return done.stdout.decode()

    def _terminal(self, command: str) -> Terminal:
        any_number = self.plan.any_number
        return Terminal(command, self.home, self._environment(), any_number=any_number)

    def _answer(self, command: str) -> str:
        """Run a command that asks for a password."""
        return self._terminal(command).answer_passwords()

    def _open_terminal(self, command: str, expected: str, title: str = "") -> None:
        terminal = self._terminal(f"exec </dev/null; exec {command}")
        terminal.expected, terminal.title = expected, title
        self.terminals.append(terminal)
        terminal.wait_until_ready()

    def _stop_terminal(self, title: str, text: str) -> None:
        """A later block of a terminal: Ctrl-C, and what the command prints then."""
        [terminal] = [each for each in self.terminals if each.title == title]
        terminal.expected += f"\n{text}"
        terminal.stop()

    def _close(self) -> None:
        with contextlib.ExitStack() as stack:
            for terminal in self.terminals:
                stack.callback(terminal.stop)
            stack.callback(self._run, self.plan.after)
            stack.push(self.cleanup)
            stack.callback(self._close_loop)

    def _close_loop(self) -> None:
        """Programs of the page may leave a connection open."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def run_pages(folder: Path, programs: Path, pages: list[Path], *, slow: bool) -> int:
    """Run pages one after another; the number of those that are wrong."""
    planned = plans()
    wrong = 0
    for number, page in enumerate(pages):
        home = folder / f"home{number}"
        home.mkdir()
        started = time.monotonic()
        try:
            with patch.dict(os.environ, planned[page].environment):
                count = PageRunner(home, planned[page], programs, slow).run(page)
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


def main(folder: Path, pages: list[Path], *, slow: bool) -> int:
    programs = folder / "bin"
    programs.mkdir()
    address = folder / "commands"
    install_programs(programs, address)
    return serve_commands(address, lambda: run_pages(folder, programs, pages, slow=slow))


if __name__ == "__main__":
    given = [Path(each).resolve() for each in sys.argv[3:]]
    sys.exit(main(Path(sys.argv[1]), given, slow=sys.argv[2] == "slow"))
