"""How long programs take to start, and what they then use while idle.

Each program is started several times, one at a time. The time is from the command to the line that
says it is ready, or to its end; CPU seconds are those of the process until then; the memory is read
half a second later. The table has the medians.

    python -m benchmarks.startup --markdown docs/benchmarks.md
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import typer

from benchmarks.harness.page import put_chapter
from benchmarks.usage import usage_of

_LISTEN = [
    word
    for scheme in ("amqp", "mqtt", "ws", "padres", "http")
    for word in ("--listen", f"{scheme}://127.0.0.1:0")
]
#: The arguments, and whether it ends by itself.
PROGRAMS = {
    "penstock version": (["version"], True),
    "penstock --help": (["--help"], True),
    "penstock broker, AMQP": (["broker", "--listen", "amqp://127.0.0.1:0"], False),
    "penstock broker, all protocols": (["broker", *_LISTEN], False),
}
_COLUMNS = ("program", "ready, s", "CPU, s", "memory, MB")
_ACCOUNT = """# Start-up

`{command}` starts each program {rounds} times. *Ready* is the time from the command to the line
that says so, or to the end of the command. *CPU* is the time of the process until then. *Memory* is
the resident memory half a second later, or the highest of a command that ended. Figures are
medians. The load average of the machine ({cores} cores) was {load:.1f} at the start.

{table}
"""


class Start(NamedTuple):
    seconds: float
    cpu_seconds: float
    rss_bytes: int


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Starts of each program.")] = 9,
    markdown: Annotated[Path | None, typer.Option(help="A page to write the table to.")] = None,
) -> None:
    """Start each program, and print the medians."""
    load = os.getloadavg()[0]
    rows = []
    for name, (arguments, ends) in PROGRAMS.items():
        starts = [_run(arguments) if ends else serve(arguments) for _ in range(rounds)]
        seconds, cpu, rss = (median(figures) for figures in zip(*starts, strict=True))
        rows.append((name, f"{seconds:.2f}", f"{cpu:.2f}", f"{rss / 1e6:.1f}"))
        print(" | ".join(rows[-1]), flush=True)
    if markdown is not None:
        head = f"| {' | '.join(_COLUMNS)} |\n|:--|--:|--:|--:|\n"
        table = head + "\n".join(f"| {' | '.join(row)} |" for row in rows)
        command = "python -m benchmarks.startup"
        put_chapter(
            markdown,
            _ACCOUNT.format(
                command=command, rounds=rounds, table=table, cores=os.cpu_count(), load=load
            ),
        )


def _run(arguments: list[str]) -> Start:
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments], stdout=subprocess.DEVNULL
    ) as program:
        _, _, used = os.wait4(program.pid, 0)
        program.returncode = 0
    return _ended(time.perf_counter() - began, used)


def _ended(seconds: float, used: resource.struct_rusage) -> Start:
    return Start(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def serve(arguments: list[str]) -> Start:
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments, "--data", folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as program:
            assert program.stdout is not None
            program.stdout.readline()
            seconds = time.perf_counter() - began
            cpu = usage_of([program.pid]).cpu_seconds
            time.sleep(0.5)
            rss = usage_of([program.pid]).rss_bytes
            program.terminate()
    return Start(seconds, cpu, rss)


if __name__ == "__main__":
    typer.run(main)
