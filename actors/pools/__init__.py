"""Handlers that run in processes of their own: pools of them, what they are told, and what is said when one is lost."""
