"""The recorded server as a program on its standard streams. `stdio_stage.py FD` forks one for each pair of streams that comes over the socket FD.

greenroom is loaded once, and each fork serves one peer with `server.run()`: a program of its own would load it anew each time, 0.3 s instead of 0.02 s.
"""

from __future__ import annotations

import os
import socket
import sys

from stage import make_server  # type: ignore[import-not-found]  # beside this program  # pyright: ignore[reportMissingImports]


def serve(streams: tuple[int, int]) -> None:
    """Be the server, on these."""
    os.dup2(streams[0], 0)
    os.dup2(streams[1], 1)
    os.closerange(3, 256)
    make_server().run()


def main(descriptor: int) -> None:
    """Fork until the other end hangs up. Each exit code goes back as one byte."""
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
