"""The programs of one configuration: JavaScript by Node and Python, each in a child process."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from fairlane.apps.promptfoo.programs.child import CALL_S, MEMORY_MB, Child, ProgramError
from fairlane.config.environment import child_environment, process_environment

JAVASCRIPT = frozenset((".js", ".cjs", ".mjs", ".ts", ".cts", ".mts"))
TYPESCRIPT = frozenset((".ts", ".cts", ".mts"))
PYTHON = frozenset((".py",))

LEAST_NODE, NODE_WITH_TYPES = (18, 0), (22, 6)
"""Versions of Node: the oldest that runs the harness, and the first that strips TypeScript's types."""

_OURS = "FAIRLANE"
"""Prefix of settings' variables, which may hold credentials: programs do not get them."""

_DECLARES = re.compile(r"(?:const|let|var)\s")
_VERSION = re.compile(r"v(\d+)\.(\d+)")


class Programs:
    """Calls programs; children start when they are first needed, and end with the block."""

    def __init__(self, *, python: str | None = None, allowed: bool = True, call_s: float = CALL_S) -> None:
        self.allowed = allowed
        self._python, self._call_s = python or sys.executable, call_s
        self._children: dict[str, Child] = {}
        self._environment: dict[str, str] = {}
        self._node: tuple[str, tuple[int, int]] | None = None

    def add_environment(self, variables: Mapping[str, str]) -> None:
        """Add variables to the environment of children that start later."""
        self._environment |= variables

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the children."""
        for child in self._children.values():
            child.close()
        self._children.clear()

    def problem(self, suffix: str) -> str | None:
        """Why a program of this kind, such as ``.js``, cannot run here; ``None`` if it can."""
        if not self.allowed:
            return "programs are refused (--no-programs)"
        if suffix in PYTHON:
            found = shutil.which(self._python) is not None
            return None if found else f"Python is not found as {self._python}: give --python PATH"
        if suffix not in JAVASCRIPT:
            return "programs are run if they are JavaScript or Python"
        path, version = self._found_node()
        if not path:
            return "JavaScript needs Node.js, and there is no node on PATH: install it"
        if version < LEAST_NODE:
            return f"JavaScript needs Node.js {LEAST_NODE[0]} or newer: {path} is {version[0]}.{version[1]}"
        if suffix in TYPESCRIPT and version < NODE_WITH_TYPES:
            wanted = ".".join(map(str, NODE_WITH_TYPES))
            return f"TypeScript needs Node.js {wanted} or newer: {path} is {version[0]}.{version[1]}"
        return None

    def code(self, language: str, code: str, names: Sequence[str], args: Sequence[Any]) -> Any:
        """The value of code: an expression, or the body of a function if it has several lines. Raises
        `ProgramError`.
        """
        if language == "python":
            request = {"code": _python_function(code, names), "function": "main", "args": list(args)}
            return self._child(".py").call(request)
        request = {"code": _javascript_body(code), "names": list(names), "args": list(args)}
        return self._child(".js").call(request)

    def file(
        self, path: Path, function: str | None, args: Sequence[Any], *, default: str, **more: Any
    ) -> Any:
        """What a file's function returns; ``default`` names Python's where none is named.

        ``values=True``: a file of JavaScript may also export the value itself. Raises `ProgramError`.
        """
        named = function or (default if path.suffix in PYTHON else None)
        return self._child(path.suffix).call(
            {"file": str(path), "function": named, "args": list(args), **more}
        )

    def provider(
        self,
        path: Path,
        function: str | None,
        options: Mapping[str, Any],
        prompt: str,
        context: Mapping[str, Any],
    ) -> Any:
        """What a file's provider answers: Python's ``call_api``, or ``callApi`` of JavaScript's class.

        Raises `ProgramError`.
        """
        if path.suffix in PYTHON:
            return self.file(path, function, [prompt, options, context], default="call_api")
        return self.file(path, function, [prompt, context], default="", provider=options)

    def hook(self, path: Path, function: str | None, args: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """What a hook returns, and its arguments as it left them. Raises `ProgramError`.

        As in promptfoo, JavaScript modules stay loaded, and each call loads Python modules again.
        """
        found = self.file(path, function, args, default="", hook=True)
        return found["returned"], found["args"]

    def script(self, path: Path, args: Sequence[str]) -> str:
        """What a Python script prints, run with these arguments. Raises `ProgramError`."""
        return str(self._child(path.suffix).call({"script": str(path), "args": list(args)}))

    def _child(self, suffix: str) -> Child:
        if problem := self.problem(suffix):
            raise ProgramError(problem)
        name = "python" if suffix in PYTHON else "node"
        if name not in self._children:
            ours: dict[str, str | None] = {
                each: None for each in process_environment() if each.startswith(_OURS)
            }
            self._children[name] = Child(
                self._command(name), child_environment(ours | self._environment), self._call_s
            )
        return self._children[name]

    def _command(self, name: str) -> list[str]:
        here, memory = Path(__file__).parent, MEMORY_MB[name]
        if name == "python":
            return [self._python, "-u", str(here / "harness.py"), str(memory << 20)]
        path, version = self._found_node()
        types = ["--experimental-strip-types"] if version >= NODE_WITH_TYPES else []
        return [path, f"--max-old-space-size={memory}", "--no-warnings", *types, str(here / "harness.cjs")]

    def _found_node(self) -> tuple[str, tuple[int, int]]:
        if self._node is None:
            path = shutil.which("node") or ""
            self._node = (path, _version(path) if path else (0, 0))
        return self._node


def split_reference(reference: str) -> tuple[str, str | None]:
    """``file://check.py:first`` → the path's text and the function's name, if one is named."""
    name = reference.removeprefix("file://")
    path, separator, function = name.rpartition(":")
    if separator and Path(path).suffix in JAVASCRIPT | PYTHON:
        return path, function or None
    return name, None


def is_program(reference: str) -> bool:
    """Whether a reference names a file of JavaScript or Python."""
    return Path(split_reference(reference)[0]).suffix in JAVASCRIPT | PYTHON


def _version(path: str) -> tuple[int, int]:
    try:
        printed = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return (0, 0)
    found = _VERSION.match(printed)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _javascript_body(body: str) -> str:
    """The body of a function: code of one line is an expression, perhaps after declarations."""
    if "\n" in body:
        return body
    line = body.strip().rstrip(";")
    statements, separator, expression = line.rpartition(";")
    if _DECLARES.match(line):
        return f"{statements}; return {expression}" if separator and expression.strip() else line
    return f"return {line}"


def _python_function(body: str, names: Sequence[str]) -> str:
    """A function ``main`` around the code, with the indentation of its first indented line."""
    if "\n" not in body:
        return f"def main({', '.join(names)}):\n    return {body}\n"
    found = re.search(r"^(?!\s*$)[ \t]+", body, re.MULTILINE)
    indent = found[0] if found else "    "
    return (
        f"def main({', '.join(names)}):\n" + "\n".join(f"{indent}{line}" for line in body.split("\n")) + "\n"
    )
