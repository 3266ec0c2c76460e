"""LiteLLM's router, told the limit as its documentation says, with retries.

A standalone program for an environment that has LiteLLM and nothing of ours; see `plain_aiohttp`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

from litellm import Router


async def main(work: dict[str, Any]) -> dict[str, Any]:
    """All calls are handed to the router at once, and it retries what is refused.

    It paces nothing, so it is told how many calls at once keep the rate: else most would be refused.
    """
    logging.disable(logging.CRITICAL)
    parameters = {
        "model": f"openai/{work['model']}",
        "api_base": work["base_url"],
        "api_key": work["key"],
        "rpm": round(work["per_s"] * 60),
        "max_parallel_requests": work["slots"],
    }
    router = Router(
        model_list=[{"model_name": work["model"], "litellm_params": parameters}],
        routing_strategy="simple-shuffle",
        optional_pre_call_checks=["enforce_model_rate_limits"],
        num_retries=work["retries"],
        retry_after=1,
        allowed_fails=10**9,
        disable_cooldowns=True,
        set_verbose=False,
    )
    # It imports much at its first call; the other programs have imported all when they begin.
    hello = [{"role": "user", "content": "hello"}]
    await router.acompletion(model=work["model"], messages=hello, mock_response="hello")
    succeeded = 0

    async def call(prompt: str) -> None:
        nonlocal succeeded
        try:
            await router.acompletion(
                model=work["model"], messages=[{"role": "user", "content": prompt}], **work["params"]
            )
            succeeded += 1
        except Exception as error:  # noqa: BLE001 - it is counted: what does not succeed has failed
            print(type(error).__name__, file=sys.stderr)

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(call(prompt) for prompt in work["prompts"]))
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    return {"wall_s": wall, "cpu_s": cpu, "succeeded": succeeded}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.load(open(sys.argv[1], encoding="utf-8"))))))  # noqa: PTH123, SIM115
