"""The cost of node processes: starting, losing and keeping one; and the cost of Thespian."""
