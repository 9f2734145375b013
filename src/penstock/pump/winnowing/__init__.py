"""Winnowing: of equal announcements the first goes on, the others do not."""
