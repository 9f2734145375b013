"""Figures as they change: server-sent events, WebSockets, and polling with entity tags.

One *feed* a worker listens to the exchange `occupancy`; what it hears becomes *issues* of one
*bulletin* that every stream of the worker follows. Nothing is kept for a stream but its place in
the bulletin, so that thousands cost little, and a slow one costs the others nothing.
"""
