"""What calls cost, by the operator's table of prices."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from fairlane.job import Usage
from fairlane.settings import Price


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """The price of ``"<connection>:<model>"``: under its own name, else under the longest pattern that fits.

    A pattern is one of a shell's, like ``"openai:gpt-4o*"``.
    """
    if model in prices:
        return prices[model]
    fitting = [pattern for pattern in prices if fnmatchcase(model, pattern)]
    return prices[max(fitting, key=len)] if fitting else None


def cost_usd(usage: Usage, price: Price) -> float:
    """Dollars for one call's tokens; what is not known costs nothing."""
    cached = usage.cached_tokens or 0
    fresh = max(0, (usage.input_tokens or 0) - cached)
    read = price.input if price.cached_input is None else price.cached_input
    return (fresh * price.input + cached * read + (usage.output_tokens or 0) * price.output) / 1e6
