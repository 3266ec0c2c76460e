"""Imports what schedulers and workers import, and forks one for each order on its standard input.

An order is a JSON object behind its length in four bytes, with two descriptors: of the output and of a gate.
The answer is the process id in four bytes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import threading
from typing import Any

ROLES = ("fairlane_scheduler.__main__", "fairlane_workers.__main__")
# What they import once they run.
LATER = (
    "billiard.pool",
    "celery.apps.worker",
    "celery.worker.consumer.delayed_delivery",
    "fairlane_workers.providers.protocols.anthropic_messages",
    "fairlane_workers.providers.protocols.openai.chat",
    "fairlane_workers.providers.protocols.openai.embeddings",
    "kombu.transport.redis",
)


def main() -> None:
    """Serve until the other side closes the socket."""
    for module in (*ROLES, *LATER):
        importlib.import_module(module)
    importlib.import_module("fairlane.store.verbs").all_scripts()
    if threading.active_count() > 1:
        raise RuntimeError(f"imports have started threads: {threading.enumerate()}")
    gc.freeze()
    with socket.socket(fileno=0) as orders:
        while True:
            head, descriptors, _, _ = socket.recv_fds(orders, 4, 2)
            if not head:
                return
            order = json.loads(_read(orders, int.from_bytes(head, "big")))
            output, gate = descriptors
            pid = _fork(order, output, gate, orders)
            os.close(output)
            os.close(gate)
            orders.sendall(pid.to_bytes(4, "big"))


def _read(orders: socket.socket, length: int) -> bytes:
    text = b""
    while len(text) < length:
        text += orders.recv(length - len(text))
    return text


def _fork(order: dict[str, Any], output: int, gate: int, orders: socket.socket) -> int:
    """Fork twice: the process in between ends at once, so that the role becomes our parent's child."""
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid:
            os.write(write, pid.to_bytes(4, "big"))
            os._exit(0)
        os.close(read)
        os.close(write)
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        nothing = os.open(os.devnull, os.O_RDONLY)
        orders.detach()
        os.dup2(nothing, 0)
        os.close(nothing)
        _run(order, gate)
    os.close(write)
    os.waitpid(between, 0)
    pid = int.from_bytes(os.read(read, 4), "big")
    os.close(read)
    return pid


def _run(order: dict[str, Any], gate: int) -> None:
    """Wait for a line at the gate, and be the role. End of file: nobody waits for it any more."""
    with os.fdopen(gate, "rb") as line:
        if not line.readline():
            os._exit(1)
    os.environ.clear()  # noqa: TID251 - the role reads its own environment
    os.environ.update(order["env"])  # noqa: TID251
    os.chdir(order["cwd"])
    module = importlib.import_module(f"{order['module']}.__main__")
    sys.argv = [str(module.__file__), *order["arguments"]]
    raise SystemExit(module.main(order["arguments"]))


if __name__ == "__main__":
    main()
