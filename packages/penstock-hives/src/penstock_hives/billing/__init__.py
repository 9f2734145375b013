"""Billing: plans, subscriptions, and webhooks of payment providers.

A webhook is verified (`stripe.py`, `apple.py`, `development.py`), becomes a `BillingEvent`, and is
stored once. The state of a subscription is computed from all of its events, so their order does
not matter.
"""
