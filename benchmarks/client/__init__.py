"""The cost of clients: ours and others, against one server that always gives the same answer."""
