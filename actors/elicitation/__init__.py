"""Servers' questions to the user: the bridge to subscribers that can answer, and forms as fields that a terminal or a window can show."""
