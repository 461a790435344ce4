"""`@server:resource`: what a user types to have a resource read, completed while they type, and read when they are done."""
