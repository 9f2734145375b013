"""Where the repository is, for tests that read its pages and programs."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ROOT / ".peers"
DOCS: Final = ROOT / "docs"

#: Of archives; Python 3.11 has it from 3.11.4.
DATA_FILTER: Final = getattr(tarfile, "data_filter", None)
