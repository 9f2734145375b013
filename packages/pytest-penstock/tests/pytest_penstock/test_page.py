"""Every block of Python in docs/testing.md is a test module that passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "testing.md"


def test_every_block_of_the_page_passes(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    assert all(lines_of_test(block) <= 10 for block in blocks)
    for number, block in enumerate(blocks):
        pytester.makepyfile(**{f"test_block_{number}": block})
    run = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--timeout=120")
    run.assert_outcomes(passed=4)


def lines_of_test(block: str) -> int:
    """Of the test, which is the last function."""
    return len(block[block.index("def test_") :].splitlines())
