"""The server demonstration: a server on loopback whose tools work, wait, fail, exit, block and stream, without harm to its process tree.

`python -m examples.demo` runs it. `demo_server` is the server with its tools, `demo_client` calls them all, `event_printer` prints what
happens. A demonstration of the `supervision` package alone is in `theatre`.
"""
