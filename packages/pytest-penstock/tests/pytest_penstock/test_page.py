"""Every block of Python in docs/testing.md and in README.md is a test module that passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_every_block_of_the_page_passes(pytester: pytest.Pytester) -> None:
    blocks = blocks_of(ROOT / "docs" / "testing.md")
    assert len(blocks) == 4
    assert all(lines_of_test(block) <= 10 for block in blocks)
    blocks += blocks_of(ROOT / "packages" / "pytest-penstock" / "README.md")
    for number, block in enumerate(blocks):
        pytester.makepyfile(**{f"test_block_{number}": block})
    run = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--timeout=120")
    run.assert_outcomes(passed=5)


def lines_of_test(block: str) -> int:
    """Of the test, which is the last function."""
    return len(block[block.index("def test_") :].splitlines())
