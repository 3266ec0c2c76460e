"""Writes docs/configuration.md from the settings models: ``python deploy/site/configuration.py``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from fairlane.config.environment import ALIASES, CONFIG_VARIABLE
from fairlane.config.keys import ENTRY, VARIABLE_PREFIX, Key, all_keys
from fairlane.config.problems import dotted

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

_INTRODUCTION = f"""\
# Configuration

<!-- Made from the settings models by `make docs-config`; edit those instead. -->

Settings come from four places: the defaults below, a TOML file, environment variables, and the options of a
command or arguments of a call. Each overrides those before it. `--config` or `{CONFIG_VARIABLE}` names the
file; otherwise `fairlane.toml` in the working directory is read, if it exists. A process reads its settings
once, when it starts. It reports all mistakes at once: each with its key, its place, and a likely correction.

```toml
[redis]
url = "redis://127.0.0.1:6379/0"

[connections.openai]
provider = "openai"

[connections.internal]
protocol = "openai"
base_url = "https://llm.example.com/v1"
api_key_env = "INTERNAL_LLM_KEY"

[lanes."openai:gpt-4o"]
requests_per_minute = 10000
tokens_per_minute = 2000000
max_concurrency = 200

[teams.search]
weight = 3
```

## Environment variables

A variable is named after its key: `{VARIABLE_PREFIX}`, then section and key in capitals, joined by two
underscores. Commas separate the entries of a list, or it is JSON: `["a, b", "c"]`. A list of tables is
JSON: `[{{"per": "day", "requests": 100}}]`. An empty variable counts as not set. A variable that
names no key is ignored, with a warning that names the nearest key.

Every process also reads the file `.env` of its working directory, for settings and for keys. What the
environment has takes precedence over the file, and an empty variable there hides the file's:

```sh
OPENAI_API_KEY=sk-…
FAIRLANE_TEAM=search
```

- `<NAME>` is the name of a connection, lane or team. Case does not matter, and `_` stands for any character
  that a variable cannot hold: `FAIRLANE_LANES__OPENAI_GPT_4O__MAX_CONCURRENCY` is the lane `openai:gpt-4o`.
  The file must name such a lane. A connection or team that the file does not name is added, in lower case.
  In the name of a header, `_` stands for `-`, unless the file names that header with `_`.
- {", ".join(f"`{alias}` is short for `{name}`" for alias, name in ALIASES.items())}.
- Only workers read the variables, files and commands that have keys (`api_key_env`, `api_key_file`,
  `api_key_command`, `proxy_credentials_env`). Keys appear in no log line, no message, and never in Redis.
- The variables that Kubernetes adds for services named `fairlane-…` are ignored.
"""

_TABLE_HEAD = "| key | type | default | variable | meaning |\n|---|---|---|---|---|"


def render() -> str:
    """The whole page, as Markdown."""
    sections: dict[tuple[str, ...], list[Key]] = {}
    for key in sorted(all_keys(), key=lambda key: len(key.path) > 1):
        sections.setdefault(key.table, []).append(key)
    return "\n".join([_INTRODUCTION, *("\n".join(_section(keys)) for keys in sections.values())])


def _section(keys: list[Key]) -> Iterator[str]:
    parent = keys[0].table
    if parent:
        yield f"## `[{dotted(parent).replace(json.dumps(ENTRY), ENTRY)}]`\n"
        yield f"{cleandoc(keys[0].section.__doc__ or '')}\n"
    else:
        yield "## At the top of the file\n"
    yield _TABLE_HEAD
    for key in keys:
        yield _row(key)
    yield ""


def _row(key: Key) -> str:
    field = key.field
    schema = key.section.model_json_schema()["properties"][key.path[len(key.table)]]
    default = "**required**" if field.is_required() else _code(field.get_default(call_default_factory=True))
    if key.name.endswith(ENTRY):  # pydantic describes such names by a pattern, if there is one
        schema = schema.get("additionalProperties") or next(iter(schema["patternProperties"].values()))
        default = "none"
    cells = [f"`{key.name}`", _type(schema), default, f"`{key.variable}`", key.description]
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _code(default: object) -> str:
    if default is None:
        return "none"
    return f"`{json.dumps(default, ensure_ascii=False)}`"


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"] if option.get("type") != "null")
    if "$ref" in schema:
        return "table"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}s"
    name = {"string": "text", "object": "table", "boolean": "`true` or `false`"}.get(
        schema["type"], str(schema["type"])
    )
    return ", ".join([name, *_bounds(schema)])


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    for word, sign in signs.items():
        if word in schema:
            yield f"{sign} {schema[word]:.15g}"
    if "pattern" in schema:
        yield f"`{schema['pattern']}`"


def main() -> None:
    """Write the page to the path given, or to its place in a checkout."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
