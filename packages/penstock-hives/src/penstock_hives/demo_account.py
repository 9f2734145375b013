"""The account that the demonstration shows people. In production mode it is refused."""

from __future__ import annotations

from typing import Final

#: Runs venues of the demonstration (`PEOPLE` in the demonstration has the others).
LOGIN: Final = "grace@hives.example"
PASSWORD: Final = "nine green bottles"
