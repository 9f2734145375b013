"""From a broker, through the work of a component, to a broker: letters in, outcomes out.

A letter is acknowledged when what it asked for is done and announced, or written down to be tried
again: whatever breaks in between, it comes again.
"""
