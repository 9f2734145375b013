"""What forecasts are worth, on open counts of people."""
