"""A process that imitates Redis in Python, to try Fairlane out without a server: slow, and without
persistence. `fairlane.embedded.server` starts it as ``fake_server.py PORT READY_FILE``; port 0 takes any free
port. The ready file holds the port.
"""

import logging
import sys
from pathlib import Path

import fakeredis
from fakeredis import TcpFakeServer


def serve(port: int, ready_file: Path) -> None:
    """Serve on the loopback address until the process ends."""
    with TcpFakeServer(("127.0.0.1", port), server_type="redis") as server:
        # Without TCP_NODELAY each small answer waits for the client's delayed acknowledgement, about 40 ms.
        server.RequestHandlerClass.disable_nagle_algorithm = True  # type: ignore[attr-defined]
        server.daemon_threads = True
        partial = ready_file.with_suffix(".partial")
        partial.write_text(str(server.server_address[1]), encoding="utf-8")
        partial.replace(ready_file)
        logging.info("fakeredis %s on port %s", fakeredis.__version__, server.server_address[1])
        server.serve_forever()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    serve(int(sys.argv[1]), Path(sys.argv[2]))
