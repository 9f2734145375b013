"""Deals of hives, their redemption and their effect."""
