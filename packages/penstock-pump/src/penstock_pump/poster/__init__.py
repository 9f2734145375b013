"""Posting: files are described, trees are scanned and watched, posts are published."""
