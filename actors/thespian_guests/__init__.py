"""Guests: actors of Thespian programs that send requests to the servers of a node."""
