"""A Django application in one file that submits runs and shows their progress.

Install Django with `pip install django uvicorn`, and start it with `uvicorn django_app:application`. In a
project of your own, put the client and the views into an application, and the paths into its `urls.py`.
"""

from __future__ import annotations

import json
import secrets
from functools import cache

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from fairlane import AsyncClient, RunNotFound, SubmissionError, exact_match

settings.configure(ROOT_URLCONF=__name__, SECRET_KEY=secrets.token_hex(), ALLOWED_HOSTS=["127.0.0.1"])
django.setup()


@cache
def fairlane() -> AsyncClient:
    """One client for all requests of this process; it connects at its first call."""
    return AsyncClient(team="search")


# In your own project, check who asks here and keep Django's CSRF protection.
@csrf_exempt
@require_POST
async def submit(request: HttpRequest) -> JsonResponse:
    """Submit a run, and return its id."""
    asked = json.loads(request.body)
    try:
        run = await fairlane().submit(
            asked["rows"], "{{ question }}", model="sim:fast", evaluators=[exact_match("answer")]
        )
    except SubmissionError as error:
        return JsonResponse({"error": str(error)}, status=422)
    return JsonResponse({"run": run.id}, status=202)


@require_GET
async def status(request: HttpRequest, run_id: str) -> JsonResponse:
    """Return the run's progress and, once it has ended, its results."""
    try:
        run = await fairlane().run(run_id)
        now = await run.status()
    except RunNotFound as error:
        return JsonResponse({"error": str(error)}, status=404)
    shown: dict[str, object] = {"state": now.state, "progress": now.progress}
    if now.state.finished:
        shown["results"] = [{"output": each.output, "scores": each.scores} async for each in run.results()]
    return JsonResponse(shown)


urlpatterns = [path("runs", submit), path("runs/<str:run_id>", status)]
application = get_asgi_application()
