"""What a client costs: ours beside those that others wrote, against one and the same server that always answers the same."""
