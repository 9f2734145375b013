"""Forecast of tomorrow's entries by hour, and whether the model is good enough to publish."""
