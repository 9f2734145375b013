"""A broker's CPU time is that of all its processes, those that have ended included."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.usage import usage_of

BUSY = "import time\nwhile time.process_time() < 0.2: pass\n"


def test_the_time_of_a_child_that_has_ended_counts() -> None:
    before = usage_of([os.getpid()])

    subprocess.run([sys.executable, "-c", BUSY], check=True)

    assert (
        usage_of([os.getpid()]).cpu_seconds - before.cpu_seconds > 0.15
    )  # the clock ticks coarsely


def test_the_time_and_memory_of_a_living_child_count() -> None:
    talk = BUSY + "print(flush=True)\ninput()\n"
    with subprocess.Popen(
        [sys.executable, "-c", talk], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alone, family = usage_of([child.pid]), usage_of([os.getpid()])
        child.communicate("\n")

    assert alone.cpu_seconds > 0.15
    assert family.rss_bytes > alone.rss_bytes > 0


def test_a_process_that_is_gone_uses_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert usage_of([child.pid]).rss_bytes == 0
