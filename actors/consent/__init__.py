"""Consent to calls of tools: the rules, what was decided before, and the one gate that every call passes."""
