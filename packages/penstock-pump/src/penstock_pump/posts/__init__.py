"""Posts and reports, and their formats v02, v03 and WIS2. Values and pure functions, no I/O."""

from penstock_pump.posts.checksums import Checksum
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import FileEvent, Post

__all__ = ["Checksum", "FileEvent", "Parts", "Post"]
