"""Every fuzzer for so many inputs, in runs that continue with the corpus of the last one."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.paths import DATA_FILTER, ROOT
from tests.reliability.records import Records

HARNESSES: Final = sorted(ROOT.glob("packages/*/tests/fuzz/fuzz_*.py"))
#: Where `tests` is.
TEST_PACKAGES: Final = (ROOT, *sorted((ROOT / "packages").iterdir()))
#: The smallest inputs that reach all that was reached, of each fuzzer.
KEPT: Final = Path(__file__).parent / "corpora"
RUN_SECONDS: Final = 120
#: By the clock; a harness itself limits the processor time of an input to a second.
HANG_SECONDS: Final = 120
MEMORY_MB: Final = 1024


def name_of(harness: Path) -> str:
    return harness.stem.removeprefix("fuzz_")


def fuzz(harness: Path, seed: int, inputs: int, corpus: Path) -> dict[str, Any]:
    """Run one fuzzer, for so many inputs and at most `RUN_SECONDS`."""
    if not corpus.exists():
        corpus.mkdir(parents=True)
        if (kept := KEPT / f"{name_of(harness)}.tar.xz").exists():
            with tarfile.open(kept) as archive:
                archive.extraction_filter = DATA_FILTER
                archive.extractall(corpus)
    done = run(
        harness,
        [
            str(corpus),
            f"-runs={inputs}",
            f"-seed={seed}",
            f"-max_total_time={RUN_SECONDS}",
            f"-timeout={HANG_SECONDS}",
            f"-rss_limit_mb={MEMORY_MB}",
            "-max_len=1024",
            "-print_final_stats=1",
        ],
        corpus.parent,
    )
    counted = re.search(r"stat::number_of_executed_units: +(\d+)", done.output)
    peak = re.search(r"stat::peak_rss_mb: +(\d+)", done.output)
    return {
        "harness": name_of(harness),
        "seed": seed,
        "inputs": int(counted[1]) if counted else 0,
        "peak_mb": int(peak[1]) if peak else 0,
        "problem": done.output[-3000:] if done.status else "",
        "seconds": round(done.seconds, 1),
        "cpu_seconds": round(done.cpu_seconds, 1),
    }


class EndedFuzzer(NamedTuple):
    status: int
    output: str
    seconds: float
    cpu_seconds: float  #: with its start


def run(harness: Path, arguments: list[str], folder: Path) -> EndedFuzzer:
    start = time.monotonic()
    # The shell forks the fuzzer: a process that this one starts inherits its peak memory, which
    # libFuzzer would take for the fuzzer's.
    command = ["sh", "-c", '"$@" & wait $!', "sh", sys.executable, str(harness), *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, TEST_PACKAGES))}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return EndedFuzzer(
            process.returncode,
            output.read().decode(errors="replace"),
            time.monotonic() - start,
            usage.ru_utime + usage.ru_stime,
        )


def keep(corpora: Path) -> None:
    """Reduce each corpus to what reaches something of its own, and store it with the tests."""
    for harness in HARNESSES:
        corpus, reduced = corpora / name_of(harness), corpora / f"{name_of(harness)}.reduced"
        if not corpus.exists():
            continue
        shutil.rmtree(reduced, ignore_errors=True)
        reduced.mkdir()
        run(harness, [str(reduced), str(corpus), "-merge=1"], corpora)
        KEPT.mkdir(exist_ok=True)
        shutil.make_archive(str(KEPT / name_of(harness)), "xztar", reduced)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000_000, help="for each fuzzer")
    parser.add_argument("--results", type=Path, help="a line for each run")
    parser.add_argument("--corpora", type=Path, default=ROOT / "build" / "corpora")
    parser.add_argument("--only", default="", help="the name of one fuzzer")
    parser.add_argument("--parallel", type=int, default=1, help="fuzzers at a time")
    parser.add_argument("--keep", action="store_true", help="store the corpora with the tests")
    options = parser.parse_args()
    corpora = options.corpora.resolve()
    if options.keep:
        keep(corpora)
        return
    records = Records(options.results)
    chosen = [each for each in HARNESSES if options.only in ("", name_of(each))]
    with ThreadPoolExecutor(options.parallel) as pool:
        running: dict[Future[dict[str, Any]], Path] = {}
        while True:
            idle = [each for each in chosen if each not in running.values()]
            idle = [each for each in idle if _left(records, each, options.inputs)]
            for harness in sorted(idle, key=lambda each: _turns(records, each)):
                if len(running) < options.parallel:
                    left, seed = _left(records, harness, options.inputs), len(records.all) + 1
                    corpus = corpora / name_of(harness)
                    running[pool.submit(fuzz, harness, seed, left, corpus)] = harness
            if not running:
                return
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                del running[ended]
                records.add(**ended.result())


def _left(records: Records, harness: Path, inputs: int) -> int:
    return max(0, inputs - records.total("inputs", harness=name_of(harness)))


def _turns(records: Records, harness: Path) -> int:
    """Slow fuzzers have as much time as fast ones."""
    return sum(record["harness"] == name_of(harness) for record in records.all)


if __name__ == "__main__":
    main()
