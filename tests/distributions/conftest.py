"""Fixtures of the distributions."""

from __future__ import annotations

import pytest

from tests.distributions.environment import Distribution, build_all


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Distribution]:
    """Package → its wheel and source distribution, all in one folder."""
    return build_all(tmp_path_factory.getbasetemp() / "distributions")
