"""The client: a connection to a server that is kept alive, and the requests over it.

`Connection` is the process. Its callers hold a `Line` (see `seam`).
"""
