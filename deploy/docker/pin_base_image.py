"""Writes the digest of the base image behind its tag, where builds name it: `make lock-image`.

It asks the image's registry (https://github.com/opencontainers/distribution-spec), so it needs no Docker.
Run it again for the tag's next release.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx

ROOT = Path(__file__).parents[2]
PLACES = {
    ROOT / "deploy/docker/Dockerfile": re.compile(r"(?<=^ARG BASE_IMAGE=)\S+", re.MULTILINE),
    ROOT / "docker-compose.yml": re.compile(r"(?<=\$\{BASE_IMAGE:-)[^}\s]+"),
}
DOCKER_HUB = "registry-1.docker.io"
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Of all platforms: the digest of one platform's image would bind builds to it."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class NoDigestError(Exception):
    """The registry did not say which image the tag means."""


def digest_of(image: str, client: httpx.Client) -> str:
    """The digest that ``image``, like ``python:3.12-slim``, has now. Raises `NoDigestError`."""
    registry, repository, tag = _parts(image)
    url, headers = f"https://{registry}/v2/{repository}/manifests/{tag}", {"Accept": ", ".join(INDEXES)}
    try:
        reply = client.head(url, headers=headers)
        if reply.status_code == httpx.codes.UNAUTHORIZED:
            token = _token(reply.headers.get("WWW-Authenticate", ""), client)
            reply = client.head(url, headers={**headers, "Authorization": f"Bearer {token}"})
        reply.raise_for_status()
    except httpx.HTTPError as error:
        raise NoDigestError(f"{registry} does not state the digest of {image}: {error}") from error
    digest = reply.headers.get("Docker-Content-Digest", "")
    if reply.headers.get("Content-Type", "").partition(";")[0] not in INDEXES or not _DIGEST.fullmatch(
        digest
    ):
        raise NoDigestError(f"{registry} has no index of {image} for all platforms")
    return digest


def pinned(image: str, client: httpx.Client) -> str:
    """``image`` with the digest of its tag, in place of an earlier one."""
    tagged = image.partition("@")[0]
    return f"{tagged}@{digest_of(tagged, client)}"


def _parts(image: str) -> tuple[str, str, str]:
    """Registry, repository and tag; a first part without dot or port is Docker Hub's."""
    first, slash, rest = image.partition("/")
    registry, path = (first, rest) if slash and re.search(r"[.:]", first) else (DOCKER_HUB, image)
    repository, _, tag = path.partition(":")
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return registry, repository, tag or "latest"


def _token(challenge: str, client: httpx.Client) -> str:
    """The token that a registry asks everybody to fetch (https://distribution.github.io/distribution/spec/auth/token/)."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    if urlsplit(fields.get("realm", "")).scheme != "https":
        raise NoDigestError(f"the registry asks for a login that is not known here: {challenge!r}")
    reply = client.get(fields.pop("realm"), params=fields)
    reply.raise_for_status()
    found = reply.json()
    return str(found.get("token") or found.get("access_token"))


def main() -> None:
    """Pin the image in every place, or in none."""
    texts = {place: place.read_text(encoding="utf-8") for place in PLACES}
    named = {match[0] for place, pattern in PLACES.items() for match in pattern.finditer(texts[place])}
    try:
        with httpx.Client(timeout=30, follow_redirects=True) as client:
            pins = {image: pinned(image, client) for image in named}
    except NoDigestError as error:
        sys.exit(f"{error}\nNothing was changed.")
    for place, pattern in PLACES.items():
        place.write_text(pattern.sub(lambda match: pins[match[0]], texts[place]), encoding="utf-8")
    sys.stdout.write("".join(f"{pin}\n" for pin in sorted(set(pins.values()))))


if __name__ == "__main__":
    main()
