"""Payments: what providers tell us of subscriptions, checked, kept once, and merged.

A provider sends webhooks. Each is verified (`stripe.py`, `apple.py`, `development.py`), becomes an
`Event`, and is kept as it came, once. What a subscription is follows from all its events together,
whatever order they came in (`folding.py`); what somebody may use follows from all their
subscriptions, whichever providers they are with (`entitlement.py`). Money is never moved from here.
"""
