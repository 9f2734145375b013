"""Where the repository is, for tests that read its pages and programs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ROOT / ".peers"
DOCS: Final = ROOT / "docs"
