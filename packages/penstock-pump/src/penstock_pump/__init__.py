"""File distribution by announcement, compatible with Sarracenia v2 and sr3.

A *post* announces a file and where to fetch it. It travels over a broker; the file does not. A
consumer fetches the file and may announce its own copy, so pumps form chains. See `docs/pump.md`.
"""
