"""How much of a tool's answer a model is given, and where the rest is."""
