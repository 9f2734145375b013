"""Hives as people find them and businesses run them; favourites and notification settings."""
