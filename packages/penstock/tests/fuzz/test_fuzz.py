"""A short run of each fuzzer with every run of the tests; long ones are for a person to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures import need_atheris
from tests.reliability.fuzzing import fuzz, name_of

#: Codecs take less than a tenth of a millisecond, a call of the management API half a millisecond.
INPUTS = dict.fromkeys(("amqp091", "amqp10", "mqtt", "padres", "filters"), 5_000)
FEW_INPUTS = 800

HARNESSES = sorted(Path(__file__).parent.glob("fuzz_*.py"))


@pytest.mark.parametrize("harness", HARNESSES, ids=name_of)
def test_a_reader_survives_the_fuzzer(harness: Path, tmp_path: Path) -> None:
    need_atheris()
    inputs = INPUTS.get(name_of(harness), FEW_INPUTS)

    # A fixed seed: a failure here is a failure everywhere, not a matter of luck.
    done = fuzz(harness, 1, inputs, tmp_path / "corpus")

    assert not done["problem"], done["problem"]
    assert done["inputs"] > 0
