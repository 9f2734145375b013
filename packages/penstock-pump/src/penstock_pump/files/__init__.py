"""Files on their way in: names in flight, verified drafts, blocks put together, links, removals.

What is below a final name is always whole and verified: a draft has another name until then.
Everything here blocks, and is called in a thread.
"""
