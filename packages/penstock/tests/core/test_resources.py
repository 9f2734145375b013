"""What the machine gives a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.core.resources import (
    disk_free,
    memory_total,
    memory_used,
    raise_descriptor_limit,
)


def test_a_process_uses_some_of_the_memory_there_is() -> None:
    assert 0 < memory_used() < memory_total()


def test_another_process_can_be_asked_about_until_it_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert memory_used(child.pid) > 0
    assert memory_used(child.pid) == 0


def test_free_space_is_what_an_unprivileged_writer_may_use(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    assert 0 < disk_free(tmp_path) <= status.f_blocks * status.f_frsize


def test_descriptors_are_raised_to_what_the_system_allows() -> None:
    raised = "from penstock.core.resources import raise_descriptor_limit as r; print(r())"
    limited = f'ulimit -Sn 64; ulimit -Hn 512; exec "{sys.executable}" -c "{raised}"'

    told = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "512"


def test_a_limit_that_is_raised_stays() -> None:
    assert raise_descriptor_limit() == raise_descriptor_limit()


def test_freed_memory_is_returned_when_it_is_enough() -> None:
    program = (
        "from penstock.core.resources import limit_arenas, memory_used, return_free_memory\n"
        "limit_arenas()\n"
        "blocks = [bytes(10_000) for _ in range(10_000)]\n"
        "last = blocks[-1]\n"  # the heap cannot shrink at its end
        "del blocks\n"
        "kept = memory_used()\n"
        "return_free_memory(above=1 << 30)\n"
        "assert memory_used() > kept - 10_000_000\n"
        "return_free_memory(above=50_000_000)\n"
        "assert memory_used() < kept - 50_000_000\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_freed_memory_stays_for_the_next_large_block() -> None:
    program = """
from pathlib import Path
from penstock.core.resources import set_mmap_threshold, set_trim_threshold

def heap():
    found = [line.split()[0] for line in Path("/proc/self/maps").open() if "[heap]" in line]
    return max(int(span.split("-")[1], 16) for span in found)

set_mmap_threshold()
set_trim_threshold()
large = bytes(1000 * 1000)
end = heap()
del large
print(heap() == end)
set_trim_threshold(64 << 10)
large = bytes(1000 * 1000)
del large
print(heap() < end)
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["True", "True"]
