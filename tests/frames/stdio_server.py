"""The recorded server as a program on its standard streams. `stdio_server.py FD` forks one for each pair of streams received on the socket FD.

greenroom is imported once, and each fork serves one peer with `server.run()`: a program of its own would import it anew each time, 0.3 s
instead of 0.02 s.
"""

from __future__ import annotations

import os
import socket
import sys

from recorded_server import make_server  # type: ignore[import-not-found]  # beside this program  # pyright: ignore[reportMissingImports]


def serve(streams: tuple[int, int]) -> None:
    """Run the server on these streams."""
    os.dup2(streams[0], 0)
    os.dup2(streams[1], 1)
    os.closerange(3, 256)
    make_server().run()


def main(descriptor: int) -> None:
    """Fork until the other end closes. Each exit code is returned as one byte."""
    made = make_server()
    del made
    with socket.socket(fileno=descriptor) as orders:
        while True:
            data, streams, _, _ = socket.recv_fds(orders, 1, 2)
            if not data:
                return
            child = os.fork()
            if child == 0:
                code = 70
                try:
                    serve((streams[0], streams[1]))
                    code = 0
                finally:
                    os._exit(code)
            for each in streams:
                os.close(each)
            _, status = os.waitpid(child, 0)
            orders.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
