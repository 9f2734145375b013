"""What is said about a file, and how it is spelled: v02, v03 and WIS2 in and out, reports.

Values and pure functions: nothing here opens a file or a socket.
"""

from penstock.pump.posts.parts import Parts
from penstock.pump.posts.post import Event, Post
from penstock.pump.posts.sums import Sum

__all__ = ["Event", "Parts", "Post", "Sum"]
