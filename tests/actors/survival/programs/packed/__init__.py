"""A package with a server in it."""
