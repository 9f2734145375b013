"""Shells: run commands on this machine, or on another over SSH."""
