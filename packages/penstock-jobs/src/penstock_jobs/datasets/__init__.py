"""Data sets that users enter and save, by predefined matrices."""
