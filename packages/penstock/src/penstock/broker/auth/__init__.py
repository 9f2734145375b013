"""Authentication by others than the users file: tokens of OAuth 2, and LDAP directories."""
