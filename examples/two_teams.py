"""Two teams share one lane. While both have work, each gets a share by its weight; alone, a team gets it all.

In fairlane.toml the team `search` has weight 3, `batch` has weight 1, and the lane 1,200 requests a minute.
"""

from __future__ import annotations

from fairlane import Client

ITEMS = 60


def main() -> None:
    """Submit the same work for both teams, and print the progress of `batch` when `search` is done."""
    rows = [{"n": n} for n in range(ITEMS)]
    with Client(team="search") as search, Client(team="batch") as batch:
        later = batch.submit(rows, "Number {{ n }}", model="sim:shared", name="nightly")
        sooner = search.submit(rows, "Number {{ n }}", model="sim:shared", name="by noon")

        sooner.wait(timeout=60)
        print(f"search {ITEMS}, batch {later.status().items_done}")

        status = later.wait(timeout=60)
        print(f"search {ITEMS}, batch {status.items_done}")


if __name__ == "__main__":
    main()
