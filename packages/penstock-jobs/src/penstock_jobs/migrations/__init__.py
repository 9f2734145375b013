"""The schema of jobs: their state, events, requests and results."""

from typing import Final

HEAD: Final = "0012"
