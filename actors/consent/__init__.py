"""Consent to tool calls: the permission rules, the stored decisions, and the check of every call."""
