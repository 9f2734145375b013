"""The fixtures of all packages' tests: see `tests/fixtures.py`."""

pytest_plugins = [
    "pytester",
    "tests.collector",
    "tests.fixtures",
    "tests.web.browser",
    "tests.workers",
]
