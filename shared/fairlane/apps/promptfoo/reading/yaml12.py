"""YAML and JSON as promptfoo reads them: in YAML 1.2 ``yes`` is a text and ``12:30`` no number; 1.0 is 1."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from fairlane.core.figures import whole
from fairlane.datasets.lines import unique_keys

YamlError: type[Exception] = yaml.YAMLError

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(_BASE):  # type: ignore[misc]
    """PyYAML's safe loader with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}


def _resolver(name: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$"), list(first))


_resolver("bool", r"true|True|TRUE|false|False|FALSE", "tTfF")
_resolver("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789")
_resolver(
    "float",
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "-+.0123456789",
)
_resolver("merge", r"<<", "<")
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)


def _integer(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    return int(text, 0 if text.lstrip("-+")[:2] in ("0b", "0o", "0x") else 10)


_Loader.add_constructor(_INT, _integer)
_Loader.add_constructor(_FLOAT, lambda loader, node: whole(loader.construct_yaml_float(node)))


def parse_json(text: str) -> Any:
    """The document in ``text``. Raises ``ValueError``, and `MalformedFile` for a key that stands twice."""
    return json.loads(text, object_pairs_hook=unique_keys, parse_float=whole)


def parse_yaml(text: str) -> Any:
    """The document in ``text``. Raises `YamlError`, also for JSON, and for a key that stands twice."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        _require_unique(node)
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _require_unique(root: Any) -> None:
    seen, left = set[int](), [root]
    while left:
        node = left.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left.extend(node.value)
            continue
        names = set[str]()
        for key, value in node.value:
            left.append(value)
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if key.value in names:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
            names.add(key.value)


def line_of(file: Path, keys: Sequence[str | int]) -> int | None:
    """The line, from 1, of the value at ``keys`` in a YAML or JSON file, or of its nearest known parent."""
    if not keys or file.suffix not in (".yaml", ".yml", ".json"):
        return None
    try:
        node = _composed(file, file.stat().st_mtime_ns)
    except OSError:
        return None
    if node is None:
        return None
    line = node.start_mark.line
    for key in keys:
        found = _child(node, key)
        if found is None:
            break
        line, node = found[0].start_mark.line, found[1]
    return int(line) + 1


def _child(node: Any, key: str | int) -> tuple[Any, Any] | None:
    """The node to point at, and the node of the next key."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value == str(key):
                return name, value
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key]
    return None


@lru_cache(maxsize=16)
def _composed(file: Path, _changed_ns: int) -> Any:
    try:
        return yaml.compose(file.read_text(encoding="utf-8-sig"), Loader=_Loader)
    except (OSError, ValueError, yaml.YAMLError):
        return None
