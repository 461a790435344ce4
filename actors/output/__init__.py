"""Limits for tool answers that go to a model, and storage of the full answers."""
