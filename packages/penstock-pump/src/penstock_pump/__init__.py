"""The pump: files announced, fetched, winnowed and announced again.

A *post* says that a file is there and where to get it; it travels over a broker, the file does not.
Whoever wants the file fetches it from where the post says and may announce its own copy, so that
pumps make chains. `docs/pump.md` shows all of it.
"""
