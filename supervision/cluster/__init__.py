"""Between processes and machines: links between nodes, what travels on them, and Thespian, which starts and places them."""
