"""Settings of components: one typed model, read from TOML or from Sarracenia's own files."""
