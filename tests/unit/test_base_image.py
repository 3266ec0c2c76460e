"""The base image is pinned by the digest that its registry tells, in every place that names it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import httpx
import pytest

ROOT = Path(__file__).parents[2]
DIGEST = f"sha256:{'ab' * 32}"
REALM = "https://auth.example.com/token"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pin_base_image", ROOT / "deploy/docker/pin_base_image.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Registry:
    """A registry that answers who fetched a token, as Docker Hub does."""

    def __init__(self, digest: str = DIGEST, kind: str = "application/vnd.oci.image.index.v1+json") -> None:
        self.asked: list[str] = []
        self._reply = {"Docker-Content-Digest": digest, "Content-Type": kind}
        self.client = httpx.Client(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if str(request.url).startswith(REALM):
            return httpx.Response(200, json={"token": f"for {request.url.params['scope']}"})
        if "Authorization" not in request.headers:
            wanted = f'Bearer realm="{REALM}",service="registry",scope="repository:library/python:pull"'
            return httpx.Response(401, headers={"WWW-Authenticate": wanted})
        assert request.headers["Authorization"] == "Bearer for repository:library/python:pull"
        self.asked.append(str(request.url))
        return httpx.Response(200, headers=self._reply)


@pytest.mark.parametrize(
    ("image", "url"),
    [
        ("python:3.12-slim", "https://registry-1.docker.io/v2/library/python/manifests/3.12-slim"),
        ("mirror.example.com/python", "https://mirror.example.com/v2/python/manifests/latest"),
        ("mirror.example.com:5000/own/python:3", "https://mirror.example.com:5000/v2/own/python/manifests/3"),
    ],
)
def test_the_registry_of_the_image_is_asked(script: ModuleType, image: str, url: str) -> None:
    registry = Registry()
    assert script.digest_of(image, registry.client) == DIGEST
    assert registry.asked == [url]


def test_an_earlier_digest_is_replaced_and_the_tag_stays(script: ModuleType) -> None:
    earlier = f"python:3.12-slim@sha256:{'00' * 32}"
    assert script.pinned(earlier, Registry().client) == f"python:3.12-slim@{DIGEST}"


@pytest.mark.parametrize(
    "registry",
    [Registry(digest="latest"), Registry(kind="application/vnd.oci.image.manifest.v1+json")],
    ids=["no digest", "one platform"],
)
def test_what_is_no_digest_for_all_platforms_is_refused(script: ModuleType, registry: Registry) -> None:
    with pytest.raises(script.NoDigestError, match="no index of python:3"):
        script.digest_of("python:3", registry.client)


def test_a_registry_that_does_not_answer_changes_nothing(script: ModuleType) -> None:
    def away(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route to host")

    with pytest.raises(script.NoDigestError, match=r"does not state .* no route to host"):
        script.digest_of("python:3", httpx.Client(transport=httpx.MockTransport(away)))


def test_every_build_names_the_same_image(script: ModuleType) -> None:
    named = [pattern.findall(place.read_text()) for place, pattern in script.PLACES.items()]
    assert [len(images) for images in named] == [1, 1]
    assert named[0] == named[1]
