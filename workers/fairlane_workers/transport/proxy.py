"""Parses the URL of a proxy between the workers and a provider."""

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx

from fairlane_workers.transport.faults import UnusableSettingError

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy's address. ``authorization`` is a secret that is sent to the proxy alone."""

    scheme: str
    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers for the proxy alone."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


def parse_proxy(text: str) -> Proxy:
    """Parse ``http://`` or ``https://``, a host, and optionally a port, user and password.

    Raises `UnusableSettingError` for anything else; the error does not quote the URL, which may hold a
    password.
    """
    remedy = "Write http://<host>:<port> or https://<host>:<port>."
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError) as error:
        raise UnusableSettingError("proxy", "(hidden)", "is not a URL", remedy) from error
    if url.scheme not in PORTS:
        problem = f"{url.scheme!r} is no supported kind of proxy" if url.scheme else "has no scheme"
        raise UnusableSettingError("proxy", "(hidden)", problem, remedy)
    if not url.host or url.path not in ("", "/") or url.query:
        raise UnusableSettingError("proxy", "(hidden)", "names no host, or more than one", remedy)
    authorization = None
    if url.userinfo:
        pair = b64encode(f"{url.username}:{url.password}".encode()).decode("ascii")
        authorization = f"Basic {pair}"
    return Proxy(url.scheme, url.raw_host.decode("ascii"), url.port or PORTS[url.scheme], authorization)


def with_credentials(proxy: str, credentials: str) -> str:
    """A proxy's URL with ``user:password`` in it, percent-encoded."""
    scheme, mark, rest = proxy.partition("://")
    user, _, password = credentials.strip().partition(":")
    return f"{scheme}{mark}{quote(user, safe='')}:{quote(password, safe='')}@{rest}"
