"""Sends each model's items of a run to the deployment that has the model's connection."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Self, Unpack

from fairlane.client.cells.handle import CellsRun
from fairlane.client.client import Client, Dataset
from fairlane.client.outputs import Run
from fairlane.client.submitting.arguments import is_constant
from fairlane.client.submitting.options import SubmitOptions
from fairlane.core.errors import StoreUnavailable, SubmissionError
from fairlane.core.paths import at_home
from fairlane.datasets.references import Reference
from fairlane.datasets.rows import read_rows
from fairlane.model.lane import FUNCTIONS


class Cells:
    """One team's access to several deployments, the cells. They share nothing and know nothing of each other.

    Each has its own Redis, scheduler, workers and connections. So a lane is in one cell only and its limit
    holds, and a cell that is lost stops its own models alone. ``cells`` are open clients by the cells' names;
    `close` closes them. ``routes`` names the cell of a connection that several of them have.
    """

    def __init__(self, cells: Mapping[str, Client], *, routes: Mapping[str, str] | None = None) -> None:
        """Raises `SubmissionError` if there is no cell, or a route leads to none of them."""
        if not cells:
            raise SubmissionError("cells", cells, "names no cell", 'Give {"a": Client(url_a), …}.')
        self._cells, self._routes = dict(cells), dict(routes or {})
        for connection, cell in self._routes.items():
            if cell not in self._cells:
                remedy = f"Cells: {', '.join(self._cells)}."
                raise SubmissionError(f"routes[{connection!r}]", cell, "is no cell", remedy)

    def submit(
        self,
        dataset: Dataset | Reference,
        prompt: str | None = None,
        *,
        check: bool = True,
        **options: Unpack[SubmitOptions],
    ) -> CellsRun:
        """Submit a run, in parts: each cell gets the models whose connections it has.

        Takes what `Client.submit` takes. Judges call from the cell of the item that they judge. Items are
        numbered as if the models stood in the order of their cells. Rows that several cells need are held in
        memory, unless ``dataset`` is a regular file, which each cell reads, or a `Reference`.

        Raises `SubmissionError` if no cell has a model's connection or several have it, and what
        `Client.submit` raises; then no part of the run is left.
        """
        parts = self._split(options)
        shared = dataset
        if len(parts) > 1 and not isinstance(dataset, Reference) and not _is_file(dataset):
            shared = list(read_rows(dataset))
        runs = dict[str, Run]()
        try:
            for cell, part in parts.items():
                runs[cell] = self._cells[cell].submit(shared, prompt, check=check, **part)
        except BaseException:
            for run in runs.values():
                with suppress(StoreUnavailable):
                    run.cancel()
            raise
        return CellsRun(runs)

    def run(self, ids: Mapping[str, str]) -> CellsRun:
        """A run found again by the ids of its parts, as `CellsRun.ids` has them.

        Raises `RunNotFound`, and `SubmissionError` for no ids or for one of an unknown cell.
        """
        strange = sorted(ids.keys() - self._cells.keys())
        if strange or not ids:
            problem = f"name {', '.join(strange)}, which is no cell" if ids else "name no part of a run"
            raise SubmissionError("ids", dict(ids), problem, f"Cells: {', '.join(self._cells)}.")
        return CellsRun({cell: self._cells[cell].run(ids[cell]) for cell in self._cells if cell in ids})

    def close(self) -> None:
        """Close every cell's client. Runs continue."""
        for client in self._cells.values():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _split(self, options: SubmitOptions) -> dict[str, SubmitOptions]:
        """The options of each cell's part, in the order of the cells."""
        models = _models(options)
        if not models:
            problem = "decides which cell calls, and is missing"
            raise SubmissionError("model", None, problem, "Use that cell's own client instead.")
        known = {name: client.connections() for name, client in self._cells.items()}
        taken = dict[str, list[str]]()
        for field, model in models:
            taken.setdefault(self._cell_of(field, model, known), []).append(model)
        parts = dict[str, SubmitOptions]()
        for cell in self._cells:
            if cell in taken:
                parts[cell] = {**options, "models": taken[cell]}
                parts[cell].pop("model", None)
        return parts

    def _cell_of(self, field: str, model: str, known: Mapping[str, Iterable[str]]) -> str:
        connection = model.partition(":")[0].strip()
        if not is_constant(connection):
            remedy = "Write the connection before the colon."
            raise SubmissionError(field, model, "has a connection that differs by row", remedy)
        if connection in self._routes:
            return self._routes[connection]
        having = [cell for cell, connections in known.items() if connection in connections]
        if len(having) == 1:
            return having[0]
        if not having:
            there = sorted({name for connections in known.values() for name in connections} - {FUNCTIONS})
            remedy = f"Connections: {', '.join(there)}."
            raise SubmissionError(field, model, f"no cell has a connection {connection!r}", remedy)
        problem = f"cells {' and '.join(having)} have a connection {connection!r}"
        remedy = f"Name one: Cells(…, routes={{{connection!r}: {having[0]!r}}})."
        raise SubmissionError(field, model, problem, remedy)


def _is_file(dataset: object) -> bool:
    """Whether it is the path of a file that can be read again, so no pipe."""
    return isinstance(dataset, str | PathLike) and at_home(Path(dataset)).is_file()


def _models(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each model behind the name of its field; none where no model is called."""
    if options.get("model") is not None:
        return [("model", str(options["model"]))]
    return [(f"models[{number}]", str(model)) for number, model in enumerate(options.get("models") or ())]
