"""Users of the HTTP API and the pages: roles, tokens, sessions, the audit log."""
