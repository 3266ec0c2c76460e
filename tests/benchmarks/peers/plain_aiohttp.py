"""Plain asyncio with aiohttp, paced at the known limit: what the calls themselves must cost.

A standalone program: reads its work as JSON from its argument and prints what it did as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aiohttp


async def main(work: dict[str, Any]) -> dict[str, Any]:
    """Each call starts when the token bucket has a token for it; there is no retry."""
    statuses: list[int] = []
    url, headers = f"{work['base_url']}/chat/completions", {"authorization": f"Bearer {work['key']}"}

    async def call(session: aiohttp.ClientSession, prompt: str) -> None:
        body = {"model": work["model"], "messages": [{"role": "user", "content": prompt}], **work["params"]}
        async with session.post(url, json=body, headers=headers) as answer:
            content = await answer.json()
            statuses.append(answer.status if "choices" in content else -answer.status)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        began, used = time.perf_counter(), time.process_time()
        running = []
        for n, prompt in enumerate(work["prompts"]):
            due = began + max(0.0, (n + 1 - work["burst"]) / work["per_s"])
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)  # noqa: TID251 - this is the program that is measured
            running.append(asyncio.create_task(call(session, prompt)))
        await asyncio.gather(*running)
        wall, cpu = time.perf_counter() - began, time.process_time() - used
    return {"wall_s": wall, "cpu_s": cpu, "succeeded": statuses.count(200)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.load(open(sys.argv[1], encoding="utf-8"))))))  # noqa: PTH123, SIM115
