"""The protocol "azure_openai": chat completions and embeddings of a deployment, or of the v1 API."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, quote

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.answers.answer import within
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.protocols.openai.chat import OpenAIChat, refuse_foreign
from fairlane_workers.providers.protocols.openai.embeddings import OpenAIEmbeddings
from fairlane_workers.providers.protocols.openai.errors import LATE_STATUSES

API_VERSION = "2024-10-21"
"""The latest version that is generally available (learn.microsoft.com, "Azure OpenAI API version lifecycle");
the first of them that reports the usage of streams."""


class AzureDialect(Dialect):
    """OpenAI's dialect at a deployment: ``/openai/deployments/{model}{path}?api-version=…``.

    A base URL that ends in ``/openai`` gets no second one. One that ends in ``/openai/v1`` leads to the v1
    API: the path alone, and a version only where the connection names one.
    """

    protocol = "azure_openai"

    def __init__(self, connection: Connection) -> None:
        path, _, query = connection.base_url.partition("?")
        path = path.rstrip("/")
        self._is_v1 = path.endswith("/openai/v1")
        self._root = "" if path.endswith("/openai") else "/openai"
        version = connection.api_version or ("" if self._is_v1 else API_VERSION)
        self._query = f"?api-version={version}" if version and "api-version" not in parse_qs(query) else ""

    @classmethod
    def of(cls, connection: Connection) -> Self:
        """See `Dialect.of`."""
        return cls(connection)

    def target(self, request: Request) -> str:
        """See `Dialect.target`. A deployment is named by the model."""
        if self._is_v1:
            return f"{self.path}{self._query}"
        return f"{self._root}/deployments/{quote(request.model, safe='')}{self.path}{self._query}"


class AzureEmbeddings(AzureDialect, OpenAIEmbeddings):
    """``POST …/embeddings`` of a deployment."""


class AzureOpenAI(AzureDialect, OpenAIChat):
    """``POST …/chat/completions`` of a deployment."""

    embeddings = AzureEmbeddings
    late_statuses: ClassVar[Mapping[str, int]] = {
        **LATE_STATUSES,
        "deploymentnotfound": 404,
        "ratelimitreached": 429,
        "nocapacity": 429,
        "internalservererror": 500,
        "serviceunavailable": 503,
        "timeout": 504,
    }

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        refuse_foreign(request.params, "Azure OpenAI")
        return super().body(request)

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """See `Dialect.error`."""
        said = super().error(headers, body)
        filtered = ", ".join(_filtered(said.error))
        return replace(said, message=f"{said.message or 'filtered'} ({filtered})") if filtered else said


def _filtered(error: Mapping[str, object]) -> Iterator[str]:
    """The categories that the content filter objected to."""
    results = within(error, "innererror", "content_filter_result")
    for category, result in results.items() if isinstance(results, dict) else ():
        if isinstance(result, dict) and result.get("filtered") is True:
            yield f"{category}: {result.get('severity') or 'detected'}"
