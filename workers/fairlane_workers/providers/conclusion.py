"""What an answer that came with a 2xx amounts to, as far as it could be read."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.job import InvalidResponse, Outcome, PermanentFailure, Success
from fairlane_workers.providers.answer import Answer
from fairlane_workers.providers.classify import Reading, classify_late_error
from fairlane_workers.providers.error_body import ErrorBody
from fairlane_workers.providers.limits import read_limits
from fairlane_workers.providers.retry_after import retry_after_ms
from fairlane_workers.providers.wording import bounded, scrubbed


def conclude(
    answer: Answer,
    status: int,
    headers: Mapping[str, str],
    reading: Reading,
    *,
    now_ms: int,
    secrets: tuple[str, ...] = (),
) -> Outcome:
    """The outcome. ``headers`` are looked up in lower case; ``now_ms`` is in epoch milliseconds."""
    if answer.error:
        error = ErrorBody.of(answer.error)
        return classify_late_error(error, headers, reading, now_ms=now_ms, secrets=secrets)
    wait_ms, hints = retry_after_ms(headers, now_ms), read_limits(reading.limits, headers, now_ms)

    def fit(text: str) -> str:
        return bounded(scrubbed(text, secrets))

    if not answer.complete:
        problem = answer.problem or "the stream ended before the answer did"
        return InvalidResponse(fit(problem), status, wait_ms, hints)
    if answer.refusal:
        return PermanentFailure(fit(answer.refusal), status, wait_ms, hints)
    output = answer.output
    if output is None:
        problem = f"the answer holds no text (finish reason {answer.finish_reason})"
        return InvalidResponse(fit(problem), status, wait_ms, hints)
    return Success(output, answer.usage, answer.finish_reason, status, wait_ms, hints)
