"""Who may call which tool, and who is asked first: rules, what was decided before, and the one gate that every call passes."""
