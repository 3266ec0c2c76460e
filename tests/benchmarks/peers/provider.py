"""The simulated provider alone, started anew for each program, so that all meet the same."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_stack import wait_for


@dataclass(frozen=True, slots=True)
class Provider:
    """``base_url`` as OpenAI's clients take it."""

    base_url: str

    def stats(self, model: str) -> dict[str, Any]:
        """Its own count of a model."""
        url = f"{self.base_url.removesuffix('/v1')}/stats"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
            counted: dict[str, Any] = json.load(answer)["models"][model]
        return counted


@contextmanager
def provider(models: str) -> Iterator[Provider]:
    """Serves ``models``, the text of a configuration."""
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        config, ready, log = (Path(folder) / name for name in ("models.toml", "ready", "log"))
        config.write_text(models)
        command = [sys.executable, "-P", "-m", "fairlane.cli", "simulate", "--port", "0"]
        with log.open("w") as out:
            process = subprocess.Popen(
                [*command, "--ready-file", str(ready), "--config", str(config)], stdout=out, stderr=out
            )
        try:
            wait_for(ready.exists, 60)
            yield Provider(json.loads(ready.read_text())["base_url"])
        finally:
            process.terminate()
            process.wait(30)
