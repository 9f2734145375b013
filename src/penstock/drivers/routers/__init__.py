"""Exchange types, one file each."""
