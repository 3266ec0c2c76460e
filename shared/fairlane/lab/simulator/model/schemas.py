"""Generates JSON that follows a schema, for the few keywords that strict structured outputs use."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

Scale = tuple[float, float]
NO_SCALES: Mapping[str, Scale] = MappingProxyType({})

LEAST, MOST = 1, 5
"""Bounds of a number whose schema and prompt have none: the usual scale of a judge."""

LEAST_STEPS = 2
"""On a narrower scale, numbers have two decimals."""


class Example:
    """Values that follow a schema. ``draw`` maps a path in the document to a number in [0, 1).

    In a list of objects, one property may have an ``enum``. The list then has one entry for each of its
    values, in order. It leaves out those in ``omits``; entries in ``breaks`` have words in place of numbers.
    ``scales`` bounds the numbers of an entry by its value, and those of a document without a list if there is
    only one scale.
    """

    def __init__(
        self,
        draw: Callable[[str], float],
        omits: frozenset[str] = frozenset(),
        breaks: frozenset[str] = frozenset(),
        scales: Mapping[str, Scale] = NO_SCALES,
    ) -> None:
        self._draw, self._omits, self._breaks, self._scales = draw, omits, breaks, scales
        self._scale = next(iter(scales.values())) if len(scales) == 1 else (LEAST, MOST)

    def of(self, schema: Mapping[str, Any], path: str = "$") -> Any:
        """A value that the schema allows; ``None`` for an unknown type."""
        if values := enum_of(schema):
            return values[int(self._draw(path) * len(values))]
        match schema.get("type"):
            case "object":
                return {name: self.of(each, f"{path}.{name}") for name, each in properties_of(schema).items()}
            case "array":
                return self._list(_table(schema.get("items")), path)
            case "integer" | "number":
                return self._number(schema, path)
            case "boolean":
                return self._draw(path) < 0.5
            case "string":
                return f"as seen at {path}"
            case _:
                return None

    def _number(self, schema: Mapping[str, Any], path: str) -> float:
        low, high = (
            stated if isinstance(stated := schema.get(name), int | float) else usual
            for name, usual in zip(("minimum", "maximum"), self._scale, strict=True)
        )
        if schema.get("type") == "number" and high - low < LEAST_STEPS:
            return round(low + self._draw(path) * (high - low), 2)
        return int(low) + int(self._draw(path) * (int(high - low) + 1))

    def _list(self, items: Mapping[str, Any], path: str) -> list[Any]:
        named = next((name for name, each in properties_of(items).items() if enum_of(each)), None)
        if named is None:
            return [self.of(items, f"{path}[0]")]
        entries = []
        for value in enum_of(items["properties"][named]):
            if value in self._omits:
                continue
            outer, self._scale = self._scale, self._scales.get(value, self._scale)
            entry = {**self.of(items, f"{path}[{value}]"), named: value}
            self._scale = outer
            entries.append(_broken(entry) if value in self._breaks else entry)
        return entries


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The schemas of an object's properties; one that is no table allows anything."""
    return {name: _table(each) for name, each in _table(schema.get("properties")).items()}


def enum_of(schema: Mapping[str, Any]) -> list[Any]:
    """The values that a schema lists; none without a list."""
    values = schema.get("enum")
    return values if isinstance(values, list) else []


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _broken(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: "high" if isinstance(value, int | float) else value for name, value in entry.items()}
