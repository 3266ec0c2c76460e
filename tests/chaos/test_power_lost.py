"""The harness' power loss takes a second of Redis' file and no more, whatever else its player waits for."""

from __future__ import annotations

import time
from pathlib import Path

from fairlane.embedded.guard import Guard
from tests.faults.proxy import run_proxies
from tests.faults.servers import UNSYNCED_S, OneServer
from tests.support.wait import wait_until

WRITTEN_S = 2.5


def test_a_power_loss_takes_the_last_second(tmp_path: Path) -> None:
    with Guard() as guard, run_proxies() as proxies:
        servers = OneServer(tmp_path, proxies, guard, ())
        confirmed = dict[int, float]()
        with servers.client() as client:
            begin = time.monotonic()

            def write() -> bool:
                confirmed[int(client.incr("n"))] = time.monotonic()
                return time.monotonic() - begin > WRITTEN_S

            wait_until(write, timeout=2 * WRITTEN_S, interval=0.01)
            killed = time.monotonic()
            servers.lose_a_second()
            servers.server.start()
            kept = int(client.get("n") or 0)
        servers.stop()
    lost_s = killed - min(confirmed[number] for number in confirmed if number > kept)
    assert UNSYNCED_S / 2 < lost_s < UNSYNCED_S + 0.3
