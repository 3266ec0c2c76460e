"""Sorts out parameters that only OpenAI has, for protocols that lack them."""

from collections.abc import Collection, Mapping
from typing import Any

from fairlane.config.connections.connection import ASKS_FOR_NOTHING
from fairlane_workers.providers.dialect import UnmappableError

_CHANGES_NO_ANSWER = frozenset(
    {"stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
)
_CHANGES_THE_ANSWER = frozenset(
    {
        *ASKS_FOR_NOTHING,
        *("top_k", "seed", "reasoning_effort", "verbosity", "prediction", "audio", "web_search_options"),
        *("functions", "function_call"),
    }
)


def without_openais(
    params: Mapping[str, Any], protocol: str | None = None, own: Collection[str] = ()
) -> dict[str, Any]:
    """``params`` without ``None``, and without OpenAI's own parameters that change no answer.

    The protocol has those in ``own``, too. An unknown parameter stays: it may be the protocol's own. Raises
    `UnmappableError` for one that would have changed the answer: dropping it would hide that. Without a
    ``protocol`` it stays: the model may know it.
    """
    kept: dict[str, Any] = {}
    for name, value in params.items():
        if value is None or (name in _CHANGES_NO_ANSWER and name not in own):
            continue
        idle = name in ASKS_FOR_NOTHING and value == ASKS_FOR_NOTHING[name]
        if name in own or name not in _CHANGES_THE_ANSWER or (protocol is None and not idle):
            kept[name] = value
        elif not idle:
            raise UnmappableError(
                f"params.{name}: the protocol {protocol!r} has no such parameter; leave it out for this model"
            )
    return kept


def split_tools(params: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """``params`` with only OpenAI's form of tools, and the tools in the protocol's own form."""
    common, tools = dict(params), params.get("tools")
    if not isinstance(tools, list):
        return common, []
    own = [tool for tool in tools if isinstance(tool, Mapping) and "function" not in tool]
    common["tools"] = [tool for tool in tools if tool not in own]
    return common, own
