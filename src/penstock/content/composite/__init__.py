"""Composite subscriptions: publications that are wanted together."""

from penstock.content.composite.composites import Composites
from penstock.content.composite.policies import Bound, Policy

__all__ = ["Bound", "Composites", "Policy"]
