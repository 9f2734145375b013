"""A short run of the fuzzer with every run of the tests; long ones are for a person to start."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNS = 20_000


def test_the_mqtt_codec_survives_the_fuzzer(tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        reason = "atheris is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    harness = Path(__file__).with_name("fuzz_mqtt.py")

    # A fixed seed: a failure here is a failure everywhere, not a matter of luck.
    done = subprocess.run(
        [sys.executable, str(harness), f"-runs={RUNS}", "-seed=1", "-max_len=512"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Done {RUNS} runs" in done.stderr
