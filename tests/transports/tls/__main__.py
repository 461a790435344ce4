"""`python -m tests.transports.tls`, which is `make tls`: programs of other projects judge our TLS and our HTTP/2.

curl speaks both protocols and presents a client certificate; h2load sends as fast as it can; Node's HTTP/2 makes two thousand calls on one
connection beside a stream; the SDKs' clients play over https. curl and h2load are Debian's (`curl`, `nghttp2-client`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.__main__ import play
from tests.interop.peers import NODE, PEERS
from tests.served_program import served

from .certificate_authority import CertificateAuthority

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
PLAYERS = ("Python mcp 2.3.0 legacy", "Python mcp 1.30.0 2025-11-25", "TypeScript sdk 1.32.2 legacy")
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
ACCEPT = "accept: application/json, text/event-stream"
JSON = "content-type: application/json"
ENDS_WITHIN = 60


def main() -> int:
    """Run all of them; 1 if any fails."""
    missing = [name for name in ("curl", "h2load") if shutil.which(name) is None]
    if missing:
        print(f"not here: {', '.join(missing)}; on Debian: apt-get install curl nghttp2-client")
        return 1
    with tempfile.TemporaryDirectory(prefix="tls-") as place:
        folder = Path(place)
        authority = CertificateAuthority(folder)
        certfile, keyfile = authority.issue()
        # what OpenSSL, Python's httpx and Node are told of it
        os.environ |= {"SSL_CERT_FILE": str(authority.certfile), "NODE_EXTRA_CA_CERTS": str(authority.certfile)}
        program = [sys.executable, "-m", "tests.transports.tls.server", str(certfile), str(keyfile)]
        with served(program, folder / "server.log") as plain:
            url = plain.replace("http:", "https:")
            verdicts = [
                curl(url, authority, "--http1.1", "1.1"),
                curl(url, authority, "--http2", "2"),
                refused(url, authority),
                h2load(url, folder),
                run("Node's HTTP/2", [str(NODE), str(HERE / "sibling.cjs"), url]),
                *(player(name, url, folder) for name in PLAYERS),
            ]
    print(f"{sum(verdicts)} of {len(verdicts)} right")
    return 0 if all(verdicts) else 1


def run(name: str, command: Sequence[str], pattern: str = "", *, fails: bool = False) -> bool:
    """Whether the command ends as it should; prints the result."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ENDS_WITHIN, check=False
    )
    right = (done.returncode != 0) == fails and re.search(pattern, done.stdout, re.DOTALL) is not None
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""]
    print(
        f"{name:<32} right: {lines[-1][:120]}" if right else f"{name:<32} WRONG\n{done.stdout}{done.stderr}", flush=True
    )
    return right


def curl(url: str, authority: CertificateAuthority, option: str, version: str) -> bool:
    """One request, in one protocol."""
    told = ["--cacert", str(authority.certfile), "-H", ACCEPT, "-H", JSON, "-d", json.dumps(HELLO)]
    command = ["curl", "-sS", option, "-w", "\nHTTP/%{http_version} %{response_code} %{ssl_verify_result}", *told, url]
    return run(f"curl {option}", command, rf'"protocolVersion":"2025-11-25".*HTTP/{version} 200 0$')


def refused(url: str, authority: CertificateAuthority) -> bool:
    """TLS before 1.2 is refused."""
    command = ["curl", "-sS", "--cacert", str(authority.certfile), "--tls-max", "1.1", "--ciphers", "ALL:@SECLEVEL=0"]
    return run("curl --tls-max 1.1", [*command, url], fails=True)


def h2load(url: str, folder: Path) -> bool:
    """As fast as it can, on one connection."""
    body = folder / "body"
    body.write_text(json.dumps(HELLO))
    requests = ["-n", "2000", "-c", "1", "-m", "32", "-d", str(body), "-H", ACCEPT, "-H", JSON]
    return run("h2load", ["h2load", *requests, url], "2000 succeeded, 0 failed, 0 errored, 0 timeout.*2000 2xx")


def player(name: str, url: str, folder: Path) -> bool:
    """An SDK's client, through its whole play."""
    (peer,) = [peer for peer in PEERS if f"{peer.name} {peer.mode}" == name]
    row = play(peer, "https", [url], folder)
    print(row, flush=True)
    return not row.wrong


if __name__ == "__main__":
    sys.exit(main())
