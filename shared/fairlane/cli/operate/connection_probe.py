"""Makes one test call on a connection, in a process of the workers' package, and describes its result."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlane.cli.output import clip
from fairlane.config.environment import child_environment
from fairlane.core.errors import LocalStackError
from fairlane.core.figures import latency, took
from fairlane.why.reasons import UNITS

MODULE = "fairlane_workers.probe"
REFUSED = 2
SHOWN_CHARS = 200

_KNOWN_BY = {
    "headers": "recognized by these headers",
    "host": "recognized by the host",
    "provider": "as the provider's preset says",
    "protocol": "as the protocol says",
    "limit_headers": "as limit_headers says",
}
_OUTCOMES = {
    "Success": "an answer",
    "RateLimited": "a rate limit",
    "Overloaded": "an overload",
    "ServerError": "an error of the server",
    "NetworkFailure": "not reached",
    "TimedOut": "a time-out",
    "InvalidResponse": "an answer that cannot be read",
    "FlawedAnswer": "an answer in the wrong form",
    "PermanentFailure": "rejected for good",
    "UnsupportedParameter": "a parameter that the model does not support",
    "AccessDenied": "access denied, which parks the lane",
}


class ProbeRefusedError(Exception):
    """No call was made; the text says why, and what to do."""


def run_probe(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Run `fairlane_workers.probe` in a child process that ends with this one, and return its report.

    Raises `ProbeRefusedError` where no call could be made, `LocalStackError` where the process failed.
    """
    # -P as for a console script: no file of the working directory hides a module.
    command = [sys.executable, "-P", "-m", MODULE, *arguments]
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=child_environment(environment),
        start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the child
    )
    said = ended.stderr.strip()
    if ended.returncode == REFUSED:
        raise ProbeRefusedError(said)
    if ended.returncode != 0:
        raise LocalStackError("probe", said.splitlines()[-1] if said else f"ended with {ended.returncode}")
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def succeeded(report: Mapping[str, Any]) -> bool:
    """Whether the provider answered the call."""
    return bool(report["outcome"] == "Success")


def probe_fields(report: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The report as names and values, one pair a line."""
    status = f", HTTP {report['status']}" if report["status"] is not None else ""
    yield "outcome", f"{report['outcome']}: {_OUTCOMES.get(report['outcome'], '')}{status}"
    yield "message", report.get("message")
    yield "latency", _latency(report)
    if succeeded(report):
        yield "answer", clip(" ".join(report["output"].split()), SHOWN_CHARS)
        yield "finish reason", report["finish_reason"] or "not reported"
        yield "usage", _usage(report["usage"])
        if report.get("left_out"):
            yield "left out", f"{', '.join(report['left_out'])}: the model does not support it"
    limits = report["limits"]
    dialect = limits["dialect"]
    yield "rate limits", f"like {dialect}: {_KNOWN_BY[limits['known_by']]}" if dialect else "in no header"
    for axis, hint in limits["axes"].items():
        yield f"  {axis}", _axis(axis, hint)
    if limits["exhausted"]:
        yield "used up", limits["exhausted"]
    retry_after_ms = report["retry_after_ms"]
    yield "Retry-After", _brief(retry_after_ms) if retry_after_ms is not None else "none"
    yield "lane", report["lane"]
    yield "shared by", f"calls with {report['shared_by']}"
    yield "charge", _charge(report["charge"])


def _latency(report: Mapping[str, Any]) -> str:
    said = f"{report['latency_ms']:,} ms"
    first = report["first_piece_ms"]
    return said if first is None else f"{said}, the first of {report['pieces']:,} pieces after {first:,} ms"


def _usage(usage: Mapping[str, int | None]) -> str:
    words = {
        "input_tokens": "input",
        "output_tokens": "output",
        "cached_tokens": "read from a cache",
        "written_tokens": "written to a cache",
    }
    counts = [f"{usage[name]:,} {word}" for name, word in words.items() if usage.get(name) is not None]
    return f"{', '.join(counts)} tokens" if counts else "not reported"


def _axis(axis: str, hint: Mapping[str, float | None]) -> str:
    said = []
    if hint["limit"] is not None:
        said.append(f"{hint['limit']:,.10g} {UNITS.get(axis, 'at once')}")
    if hint["remaining"] is not None:
        said.append(f"{hint['remaining']:,.10g} left")
    if hint["reset_ms"] is not None:
        said.append(f"renewed in {_brief(hint['reset_ms'])}")
    return ", ".join(said)


def _brief(milliseconds: float) -> str:
    return took(milliseconds) if milliseconds >= 1000 else latency(milliseconds)


def _charge(charge: Mapping[str, Any]) -> str:
    factor = charge["output_factor"]
    said: str = charge["charge"] + (f", output tokens {factor:g} times" if factor != 1 else "")
    match charge.get("verdict"):
        case "agrees":
            return f"{said}; this agrees: {charge['reason']}"
        case "differs":
            other = "reserved" if charge["charge"] == "used" else "used"
            return f'{said}; this call says otherwise, charge = "{other}" would fit: {charge["reason"]}'
        case "unknown":
            return f"{said}; this call does not show it: {charge['reason']}"
        case _:
            return said
