"""The schema of history: publications kept on request, and the queries about them."""

from typing import Final

HEAD: Final = "0010"
