"""The schema of the archive."""

from typing import Final

HEAD: Final = "0017"
