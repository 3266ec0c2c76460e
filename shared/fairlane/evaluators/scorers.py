"""Placeholder."""
from dataclasses import dataclass
@dataclass
class Score:
    value: float | None
    error: str | None = None
def score(spec, output, row):
    return Score(float(str(row.get(spec.expected)) in output))
