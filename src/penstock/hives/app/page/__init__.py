"""The public page: an HTML file, a module and a style sheet, served from memory as they are.

No build step: what is in this folder is what a browser gets.
"""
