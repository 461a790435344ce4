"""The client side: a supervised connection to one server, and the requests over it.

`ServerConnection` is the process; callers hold a `Line` (see `interfaces`).
"""
