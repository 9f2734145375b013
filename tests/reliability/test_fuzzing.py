"""A short run of the fuzzers of the applications; those of the broker are beside its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures import need_atheris
from tests.reliability.fuzzing import HARNESSES, fuzz, name_of

OF_APPLICATIONS = [each for each in HARNESSES if each.parents[2].name != "penstock"]
INPUTS = 300


@pytest.mark.parametrize("harness", OF_APPLICATIONS, ids=name_of)
def test_a_reader_of_an_application_survives_the_fuzzer(harness: Path, tmp_path: Path) -> None:
    need_atheris()

    done = fuzz(harness, 1, INPUTS, tmp_path / "corpus")

    assert not done["problem"], done["problem"]
    assert done["inputs"] > 0
