"""A short run of each fuzzer with every run of the tests; long ones are for a person to start."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import missing
from tests.peers import PeerMissing

RUNS = 20_000
SECONDS = 300

HARNESSES = sorted(Path(__file__).parent.glob("fuzz_*.py"))


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("harness", HARNESSES, ids=lambda path: path.stem.removeprefix("fuzz_"))
def test_a_codec_survives_the_fuzzer(harness: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        missing(PeerMissing("atheris is not installed"))

    # A fixed seed: a failure here is a failure everywhere, not a matter of luck.
    done = subprocess.run(
        [sys.executable, str(harness), f"-runs={RUNS}", "-seed=1", "-max_len=512"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Done {RUNS} runs" in done.stderr
