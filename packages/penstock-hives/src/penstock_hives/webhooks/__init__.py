"""Outgoing webhooks of businesses: occupancy, alerts about sensors, deals."""
