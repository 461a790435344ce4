"""Mentions of resources in a user's text (`@server:resource`): completion while typing, and reading."""
