"""Images of hives: the gallery, uploads, files on disk."""
