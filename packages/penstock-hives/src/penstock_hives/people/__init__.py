"""Users, business accounts, members, invitations, API keys; roles and permissions."""
