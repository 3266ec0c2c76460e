"""Side by side in one run, cold: the same provider, keys, prompts and limits for each program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from tests.benchmarks.peers.programs import MOST_S, PEERS, PROGRAMS, Did, Work
from tests.benchmarks.peers.provider import provider
from tests.benchmarks.report import Finding
from tests.benchmarks.scale.page import markdown, rewrite
from tests.benchmarks.workloads import LATENCY_S, simulated

MEAN_S = 0.54  # of a lognormal latency with median 0.5 s and sigma 0.4
PLAIN = "plain aiohttp"
SIZES = {50: 750, 500: 5000}
QUICK = {50: 300, 500: 1500}


def peers(
    *, quick: bool = False, docs: Path | None = None, details: dict[str, Any] | None = None
) -> Iterator[Finding]:
    """Plain asyncio with aiohttp, bare Celery, LiteLLM's router where it is installed, and Fairlane.

    ``docs``: the page whose table is written anew; ``details`` receives all that was measured.
    """
    rows: list[tuple[str, ...]] = []
    for per_s, calls in (QUICK if quick else SIZES).items():
        ideal = (calls - per_s) / per_s + LATENCY_S
        plain: Did | None = None
        for name, program in PROGRAMS.items():
            if program is PROGRAMS["LiteLLM's router"] and not PEERS.exists():
                yield Finding("peers", f"{name}: not installed", 0, "", note="make bench-peers installs it")
                continue
            with provider(simulated("same", per_s * 60)) as served:
                work = Work(
                    model="same",
                    per_s=per_s,
                    prompts=tuple(f"question {n}" for n in range(calls)),
                    params={"max_tokens": 32},
                    slots=round(per_s * MEAN_S),
                )
                try:
                    did = program(work.at(served.base_url))
                except (TimeoutExpired, AssertionError):
                    yield Finding("peers", f"{per_s}/s, {name}: not finished within", MOST_S, "s")
                    rows.append((f"{per_s}/s", name, f"not within {MOST_S:g} s", "", "", "", ""))
                    continue
                refused = served.stats("same")["rejected"]
            plain = plain or did
            cpu, times = did.cpu_s * 1000 / calls, did.cpu_s / plain.cpu_s
            at = f"{per_s}/s, {name}"
            yield Finding("peers", f"{at}: wall ÷ ideal", did.wall_s / ideal)
            yield Finding(
                "peers", f"{at}: CPU per 1,000 calls", cpu, "s", note=f"{times:.1f} × plain aiohttp"
            )
            yield Finding("peers", f"{at}: 429s", refused, "calls")
            yield Finding("peers", f"{at}: succeeded", did.succeeded, "calls", note=f"of {calls}")
            rows.append(
                (
                    f"{per_s}/s",
                    name,
                    f"{did.wall_s / ideal:.3f}",
                    f"{cpu:.2f}",
                    f"{times:.1f}",
                    f"{refused:,}",
                    f"{did.succeeded:,} of {calls:,}",
                )
            )
            if details is not None:
                details.setdefault("peers", []).append({"at": at, "refused": refused, **asdict(did)})
    if docs is not None:
        head = ("rate", "program", "wall ÷ ideal", "CPU per 1,000 calls, s", "÷ plain", "429s", "succeeded")
        rewrite(docs, {"peers": markdown(head, rows)})
