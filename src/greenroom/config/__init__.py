"""Servers in files: what may stand there, what is wrong with it, and which servers a host is to have."""
