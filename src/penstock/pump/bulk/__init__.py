"""Announcements by the hundred thousand: AMQP 0-9-1 put together as bytes, many in one write.

The client (`penstock.client`) makes each message a task with a future, as programs want it; that
costs more than a small file does. Whoever announces a whole tree needs to know only when all of it
is safe. Blocking, and called in a thread.
"""
