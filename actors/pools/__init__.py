"""Handlers that run in processes of their own: pools of workers, the messages to them, and the errors when one is lost."""
