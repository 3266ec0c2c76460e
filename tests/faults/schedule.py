"""A schedule of faults: drawn from a seed, printed as one line, and read back from it."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.kinds import ANY, HANGS, KINDS, LEADER, MACHINE, SCHEDULERS, SUBMIT, USUAL, WORKERS

BEGIN_S, END_S = 1.5, 9.0
"""When faults begin, in seconds after the runs were submitted: while all of them have work to do."""

MOST_FAULTS = 7
HANGS_EVERY_S, HANGS_UNTIL_S = 12, 390
_FAULT = re.compile(r"(?P<name>\w+)=(?P<target>[\w-]+)@(?P<at>[\d.]+)\+(?P<seconds>[\d.]+)")


@dataclass(frozen=True, slots=True, order=True)
class Timed:
    """A fault that begins ``at_s`` seconds after the start of its schedule and lasts ``seconds``."""

    at_s: float
    seconds: float
    name: str
    target: str = ANY

    def __str__(self) -> str:
        return f"{self.name}={self.target}@{self.at_s:g}+{self.seconds:g}"

    @property
    def until_s(self) -> float:
        """When it ends."""
        return self.at_s + self.seconds


@dataclass(frozen=True, slots=True)
class Schedule:
    """Faults in the order of their beginnings; ``seed`` also decides what the faults choose themselves."""

    seed: int
    faults: tuple[Timed, ...]

    def __str__(self) -> str:
        return " ".join([f"seed:{self.seed}", *(str(fault) for fault in self.faults)])

    def without(self, *left_out: Timed) -> Schedule:
        """The same schedule without some of its faults."""
        return Schedule(self.seed, tuple(fault for fault in self.faults if fault not in left_out))


def parse(line: str) -> Schedule:
    """The schedule that `Schedule.__str__` printed. Raises ``ValueError`` that names the wrong word."""
    seed, faults = 0, []
    for word in line.split():
        if word.startswith("seed:"):
            seed = int(word.removeprefix("seed:"))
            continue
        found = _FAULT.fullmatch(word)
        if found is None or found["name"] not in KINDS:
            raise ValueError(f"{word!r} is no fault: write NAME=TARGET@AT+SECONDS")
        faults.append(Timed(float(found["at"]), float(found["seconds"]), found["name"], found["target"]))
    return Schedule(seed, tuple(sorted(faults)))


def draw(seed: int, names: Sequence[str] = USUAL) -> Schedule:
    """One to seven faults of these names. The same arguments always give the same schedule."""
    rng = random.Random(f"schedule/{seed}")
    wanted, faults = rng.randint(1, MOST_FAULTS), list[Timed]()
    for _ in range(20 * wanted):
        fault = _fault(rng, rng.choice(list(names)))
        if not any(_clash(fault, other) for other in faults):
            faults.append(fault)
        if len(faults) == wanted:
            break
    return Schedule(seed, tuple(sorted(faults)))


def alone(seed: int, name: str) -> Schedule:
    """Only faults of one name: two of them, one after the other."""
    rng = random.Random(f"{name}/{seed}")
    first, second = _fault(rng, name, BEGIN_S, BEGIN_S + 1), _fault(rng, name, END_S - 1, END_S)
    return Schedule(seed, (first, second))


def hanging(seed: int) -> Schedule:
    """A run of 100,000 rows, in which something stands still every few seconds until it should be done."""
    rng = random.Random(f"hanging/{seed}")
    starts = range(HANGS_EVERY_S, HANGS_UNTIL_S, HANGS_EVERY_S)
    hangs = [_fault(rng, rng.choice(HANGS), at, at + 1) for at in starts]
    return Schedule(seed, (Timed(0.5, 1.0, "many_rows"), *hangs))


def _fault(rng: random.Random, name: str, begin_s: float = BEGIN_S, end_s: float = END_S) -> Timed:
    kind = KINDS[name]
    return Timed(
        round(rng.uniform(begin_s, end_s), 2),
        round(rng.uniform(*kind.seconds), 2),
        name,
        rng.choice(kind.targets),
    )


def _clash(one: Timed, other: Timed) -> bool:
    """Whether they act on the same thing at the same time."""
    apart = one.until_s + 0.5 <= other.at_s or other.until_s + 0.5 <= one.at_s
    return not apart and act_on_same(one, other)


def act_on_same(one: Timed, other: Timed) -> bool:
    """Whether two faults act on the same thing, so that one may begin only when the other has ended."""
    return bool(_used(one) & _used(other))


def _used(fault: Timed) -> frozenset[str]:
    """What a fault occupies. Whoever leads is not known before, so it may be any scheduler."""
    use = KINDS[fault.name].uses
    if use == MACHINE:
        return frozenset({*WORKERS, *SCHEDULERS, "redis", SUBMIT})
    if fault.name in (
        "redis_stop",
        "redis_busy",
    ):  # a client that submits meanwhile would wait, and the schedule with it
        return frozenset({"redis", SUBMIT})
    if use == "workers" or (not use and fault.target == ANY):
        return frozenset({*WORKERS, *(SCHEDULERS if fault.target == ANY and not use else ())})
    if use == "schedulers" or fault.target == LEADER:
        return frozenset(SCHEDULERS)
    return frozenset({use or fault.target})
