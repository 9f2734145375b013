"""Hives: places, the sensors at their doors, and how many people are inside."""
