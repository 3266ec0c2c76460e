"""The demonstration's dataset: GSM8K's test questions (Cobbe et al., 2021; MIT licence), on two lanes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

SLOW_EVERY = 3  # one question in three goes to the slow lane


@contextmanager
def demo_file(name: str) -> Iterator[Path]:
    """A data file of the demonstration as a path."""
    with as_file(files("fairlane.local.demo") / "data" / name) as path:
        yield path


def read_questions(limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Rows with ``question``, ``answer`` (the final number as text) and ``lane`` (fast or slow)."""
    with demo_file("gsm8k.jsonl") as path, path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if limit is not None and number >= limit:
                return
            row = json.loads(line)
            yield {
                "question": row["question"],
                "answer": row["answer"].rpartition("####")[2].strip(),
                "lane": "slow" if number % SLOW_EVERY == 0 else "fast",
            }
