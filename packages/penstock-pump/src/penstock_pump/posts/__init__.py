"""What is said about a file, and how it is spelled: v02, v03 and WIS2 in and out, reports.

Values and pure functions: nothing here opens a file or a socket.
"""

from penstock_pump.posts.checksums import Checksum
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import FileEvent, Post

__all__ = ["Checksum", "FileEvent", "Parts", "Post"]
