"""Makes up JSON that follows a schema, for the few keywords that strict structured outputs are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LEAST, MOST = 1, 5
"""Bounds of a number whose schema states none: those of a usual scale."""


class Example:
    """``draw`` gives a number in [0, 1) for a place in the document, always the same one.

    A list of objects of which one property has an ``enum`` gets an entry for each of its values, in order:
    not for those in ``omits``, and with words for numbers in those of ``breaks``.
    """

    def __init__(
        self,
        draw: Callable[[str], float],
        omits: frozenset[str] = frozenset(),
        breaks: frozenset[str] = frozenset(),
    ) -> None:
        self._draw, self._omits, self._breaks = draw, omits, breaks

    def of(self, schema: Mapping[str, Any], place: str = "$") -> Any:
        """A value that the schema allows; ``None`` for what has no type that is known here."""
        if "enum" in schema:
            values = list(schema["enum"])
            return values[int(self._draw(place) * len(values))]
        match schema.get("type"):
            case "object":
                return {name: self.of(each, f"{place}.{name}") for name, each in _properties(schema).items()}
            case "array":
                return self._list(schema.get("items", {}), place)
            case "integer" | "number":
                low, high = schema.get("minimum", LEAST), schema.get("maximum", MOST)
                return low + int(self._draw(place) * (int(high - low) + 1))
            case "boolean":
                return self._draw(place) < 0.5
            case "string":
                return f"as seen at {place}"
            case _:
                return None

    def _list(self, items: Mapping[str, Any], place: str) -> list[Any]:
        named = next((name for name, each in _properties(items).items() if "enum" in each), None)
        if named is None:
            return [self.of(items, f"{place}[0]")]
        entries = []
        for value in items["properties"][named]["enum"]:
            if value in self._omits:
                continue
            entry = {**self.of(items, f"{place}[{value}]"), named: value}
            entries.append(_broken(entry) if value in self._breaks else entry)
        return entries


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    return properties


def _broken(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: "high" if isinstance(value, int | float) else value for name, value in entry.items()}
