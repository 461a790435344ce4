"""The client: a connection to a server that is kept alive, and what is asked over it.

`Connection` is the process. Everybody else holds its `Line` (see `seam`).
"""
