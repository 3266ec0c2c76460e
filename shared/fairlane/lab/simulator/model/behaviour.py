"""Draws the latency, length and fault of each request from seed, model and ordinal."""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fairlane.lab.simulator.config import SimulatedModel, Window


class Fault(StrEnum):
    """The faults of `config.Faults`, under the same names."""

    ERROR_500 = "error_500"
    ERROR_502 = "error_502"
    ERROR_503 = "error_503"
    ERROR_529 = "error_529"
    ERROR_IN_STREAM = "error_in_stream"
    RESET = "reset"
    RESET_AFTER_WORK = "reset_after_work"
    HANG = "hang"
    MALFORMED = "malformed"
    CUT_STREAM = "cut_stream"
    ERROR_401 = "error_401"
    ERROR_404 = "error_404"
    ERROR_429 = "error_429"


ERROR_STATUS = {
    **{Fault.ERROR_500: 500, Fault.ERROR_502: 502, Fault.ERROR_503: 503, Fault.ERROR_529: 529},
    **{Fault.ERROR_401: 401, Fault.ERROR_404: 404, Fault.ERROR_429: 429},
}
BEFORE_WORK = frozenset({*ERROR_STATUS, Fault.RESET, Fault.HANG})
PAID = frozenset({Fault.RESET_AFTER_WORK, Fault.MALFORMED, Fault.CUT_STREAM})
"""Faults after the work: the provider charges for it although its answer is lost."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One request's behaviour. The request's ``max_tokens`` does not limit ``output_tokens`` yet."""

    latency_s: float
    output_tokens: int
    fault: Fault | None


def draw(seed: int, name: str, ordinal: int, model: SimulatedModel) -> Draw:
    """The behaviour of the ``ordinal``-th admitted request; the same arguments always give the same one."""
    rng = random.Random(f"{seed}/{name}/{ordinal}")
    fault = _fault(rng.random(), model)
    latency_ms = model.latency_ms * math.exp(model.latency_sigma * rng.gauss(0.0, 1.0))
    tokens = round(rng.gauss(model.output_tokens, model.output_tokens_stddev))
    return Draw(latency_s=latency_ms / 1000, output_tokens=max(1, tokens), fault=fault)


def longest_answer(model: SimulatedModel, max_tokens: int | None) -> int:
    """Tokens that no answer to a request with ``max_tokens`` exceeds."""
    return min(max_tokens or model.max_output_tokens, model.max_output_tokens)


def charge_of(
    model: SimulatedModel, prompt: int, output: int, max_tokens: int | None, fault: Fault | None
) -> tuple[int, int]:
    """All tokens that the limits charge for a request, and the output tokens among them."""
    if model.charge == "reserved":
        output = longest_answer(model, max_tokens)
    elif fault in BEFORE_WORK:
        return 0, 0
    output = math.ceil(output * model.output_factor)
    return prompt + output, output


def share(seed: int, *parts: str) -> float:
    """A number in [0, 1) that depends on ``seed`` and ``parts`` alone."""
    drawn_for = "\0".join((str(seed), *parts)).encode(errors="surrogatepass")
    digest = hashlib.blake2b(drawn_for, digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def remaining_ms(windows: Sequence[Window], elapsed_ms: int) -> int | None:
    """Milliseconds until the window that holds ``elapsed_ms`` ends; ``None`` outside all of them."""
    for start, duration in windows:
        begins, ends = round(start * 1000), round((start + duration) * 1000)
        if begins <= elapsed_ms < ends:
            return ends - elapsed_ms
    return None


def _fault(point: float, model: SimulatedModel) -> Fault | None:
    for name, probability in model.faults:
        if point < probability:
            return Fault(name)
        point -= probability
    return None
