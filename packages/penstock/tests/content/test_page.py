"""The example of the package does what it says."""

from __future__ import annotations

import doctest


def test_the_example_of_the_package() -> None:
    import penstock.content

    assert not doctest.testmod(penstock.content).failed
