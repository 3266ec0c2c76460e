"""Writes docs/cli.md from the application's own commands: ``python deploy/site/command_line.py [FILE]``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from fairlane.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"

HEAD = """\
# Command line

Every command with its arguments and options. `deploy/site/command_line.py` writes this page from the
commands themselves.

- `--config FILE`, `--redis URL` and `--team NAME` may stand before or after any command.
- Commands take a run's id, the beginning of it, its name, or `latest`. Without one, commands that read a
  run take the latest.
- Commands that show a state take `--json`. All take `--help`.
- How commands end is in [exit codes](exit-codes.md).
"""

EVERYWHERE = {"--config", "--redis", "--team", "--help"}
"""Options of every command, which the page names once."""


def main(arguments: list[str]) -> int:
    """Write the page to a file, by default docs/cli.md."""
    place = Path(arguments[0]) if arguments else PAGE
    place.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """The whole page: a list of the commands, then a section for each."""
    root = typer.main.get_command(app)
    commands = list(_commands(root, _context(root, "fairlane")))
    rows = [f"| [`{name}`](#{_anchor(name)}) | {_summary(command)} |" for name, command, _ in commands]
    index = "\n".join(["| command | does |", "|---|---|", *rows])
    return "\n".join([HEAD, index, *(_section(*each) for each in commands)])


def _commands(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Full name, command and context of everything below a group; groups that run by themselves included."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        inner = _context(command, name, context)
        full = inner.command_path
        if not _is_group(command):
            yield full, command, inner
            continue
        if command.invoke_without_command:
            yield full, command, inner
        yield from _commands(command, inner)


def _context(command: Any, name: str, parent: Any = None) -> Any:
    return command.context_class(command, info_name=name, parent=parent)


def _is_group(command: Any) -> bool:
    return hasattr(command, "list_commands")


def _section(name: str, command: Any, context: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each
        for each in command.params
        if each.param_type_name == "option" and not each.hidden and not EVERYWHERE & set(each.opts)
    ]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *(_usage(each) for each in arguments)])
    parts = [f"\n## {name}\n", _prose(command.help), f"\n```text\n{usage}\n```"]
    rows = [_argument(each) for each in arguments if each.help] + [_option(each, context) for each in options]
    if rows:
        parts += ["", "| argument or option | meaning |", "|---|---|", *rows]
    return "\n".join(parts)


def _usage(argument: Any) -> str:
    shown = str(argument.metavar or argument.name.upper() + ("..." if argument.nargs < 0 else ""))
    return shown if argument.required or shown.startswith("[") else f"[{shown}]"


def _argument(argument: Any) -> str:
    return f"| `{_usage(argument)}` | {_cell(argument.help)} |"


def _option(option: Any, context: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = _value(option, context).replace("|", "\\|")
    notes = [_cell(option.help or "")]
    if option.required:
        notes.append("Required.")
    elif (default := _default(option)) is not None:
        notes.append(f"Default: {default}.")
    return f"| {names}{f' `{value}`' if value else ''} | {' '.join(note for note in notes if note)} |"


def _value(option: Any, context: Any) -> str:
    """What stands after the option; nothing for a flag."""
    if option.is_flag:
        return ""
    if option.metavar:
        return str(option.metavar)
    shown = re.split(r"[ =]", option.get_help_record(context)[0].rpartition("--")[2], maxsplit=1)[-1]
    shown = shown.partition("...")[0].strip("<>[] ")
    kind = shown.partition(" ")[0].lower()
    return {"int": "N", "integer": "N", "float": "N", "str": "TEXT", "text": "TEXT"}.get(kind, shown)


def _default(option: Any) -> str | None:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag or option.default is None or callable(option.default) or option.default == ():
        return None
    value = getattr(option.default, "value", option.default)
    return f"`{value}`"


def _summary(command: Any) -> str:
    """The first sentence of a command's help."""
    paragraph = _prose(command.help).partition("\n\n")[0]
    return _cell(re.split(r"(?<=[.])\s", paragraph)[0])


def _prose(text: str | None) -> str:
    """Help as Markdown paragraphs, without the marks that typer's formatting uses."""
    paragraphs = re.split(r"\n\s*\n", (text or "").replace("\b", "").strip())
    return "\n\n".join(re.sub(r"\s+", " ", paragraph) for paragraph in paragraphs)


def _cell(text: str) -> str:
    """Text in one cell of a table; a browser must not take ``<…>`` for an element."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|").replace("<", "&lt;")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
