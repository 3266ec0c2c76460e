"""A web application that submits runs and shows their progress.

Install it with `pip install fastapi uvicorn`, and start it with `uvicorn web_app:app`. Requests return at
once, because a run needs no client. The application keeps no state, so several processes may serve it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from fairlane import AsyncClient, RunNotFound, SubmissionError, exact_match


class Asked(BaseModel):
    """Questions with their expected answers."""

    rows: list[dict[str, str]] = Field(min_length=1, max_length=10_000)
    prompt: str = "{{ question }}"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open one client for all requests; it never blocks the event loop."""
    async with AsyncClient(team="search") as client:
        app.state.client = client
        yield


def the_client(request: Request) -> AsyncClient:
    client: AsyncClient = request.app.state.client
    return client


app = FastAPI(title="Evaluations", lifespan=lifespan)
Fairlane = Annotated[AsyncClient, Depends(the_client)]


@app.post("/runs", status_code=202)
async def submit(asked: Asked, client: Fairlane) -> dict[str, str]:
    """Submit a run, and return its id."""
    try:
        run = await client.submit(
            asked.rows, asked.prompt, model="sim:fast", evaluators=[exact_match("answer")]
        )
    except SubmissionError as error:
        raise HTTPException(422, str(error)) from error
    return {"run": run.id}


@app.get("/runs/{run_id}")
async def status(run_id: str, client: Fairlane) -> dict[str, Any]:
    """Return the run's progress, and what limits it."""
    try:
        run = await client.run(run_id)
        now = await run.status()
        waits_for = None if now.state.finished else (await run.why()).sentence
    except RunNotFound as error:
        raise HTTPException(404, str(error)) from error
    return {"state": now.state, "progress": now.progress, "waits_for": waits_for}


@app.get("/runs/{run_id}/results")
async def results(run_id: str, client: Fairlane) -> list[dict[str, Any]]:
    """Return every item with its scores, once the run has ended."""
    try:
        run = await client.run(run_id)
        if not (await run.status()).state.finished:
            raise HTTPException(409, "the run has not ended yet")
        return [
            {"item": record.item, "output": record.output, "scores": record.scores}
            async for record in run.results()
        ]
    except RunNotFound as error:
        raise HTTPException(404, str(error)) from error


@app.delete("/runs/{run_id}", status_code=202)
async def cancel(run_id: str, client: Fairlane) -> None:
    """Cancel the run. Results so far stay."""
    try:
        await (await client.run(run_id)).cancel()
    except RunNotFound as error:
        raise HTTPException(404, str(error)) from error
