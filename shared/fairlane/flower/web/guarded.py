"""The base of Fairlane's handlers: requires Flower's login, and refuses requests from other sites."""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from flower.app import Flower
from flower.views import BaseHandler
from redis.exceptions import RedisError
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.web import Application, HTTPError, RequestHandler

from fairlane.core.errors import LaneNotFound, RunNotFound, StoreUnavailable, TargetNotFound
from fairlane.flower.readings.readers import Readers

T = TypeVar("T")

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


LOCAL = ("127.0.0.1", "localhost", "::1")


def _is_local(host: str) -> bool:
    """Whether ``host`` is an IP address or localhost, which DNS cannot redirect."""
    with suppress(ValueError):
        ip_address(host.strip("[]"))
        return True
    return host == "localhost" or host.endswith(".localhost")


def find_handler(application: Flower, request: HTTPServerRequest, **kwargs: Any) -> HTTPMessageDelegate:
    """Find the handler of a request; replaces Flower's own method, for all pages. Without a login, a Flower
    on a local address answers only to local names. Otherwise a foreign page whose name resolves to this
    machine (DNS rebinding) would share its origin.
    """
    options = application.options
    local = options.address in LOCAL and not (options.basic_auth or options.auth)
    delegate: HTTPMessageDelegate
    if local and not _is_local(request.host_name):
        delegate = application.get_handler_delegate(request, ForeignName)
    else:
        delegate = Application.find_handler(application, request, **kwargs)
    return delegate


class ForeignName(RequestHandler):
    """Answers a request to a name that is not this machine's."""

    def prepare(self) -> None:
        """403, whatever the method."""
        raise HTTPError(403, f"{self.request.host_name} is no name of this machine; set a login for others")

    def write_error(self, status_code: int, **_: Any) -> None:
        """Send the error as JSON."""
        self.finish({"error": f"{self.request.host_name} is no name of this machine; set a login for others"})


class Guarded(BaseHandler):
    """Requires Flower's login for every method, also where Flower would not."""

    readers: Readers

    def initialize(self, readers: Readers) -> None:
        """``readers`` are those that all pages share."""
        self.readers = readers

    @property
    def flower(self) -> Flower:
        """The application, with its options and events."""
        return cast(Flower, self.application)

    def set_default_headers(self) -> None:
        """Allow no other origin, whatever Flower allows for its API."""
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Security-Policy", CONTENT_POLICY)

    def check_xsrf_cookie(self) -> None:
        """Check it always: also without a login, where Flower does not, and with basic authentication."""
        self._require_login()
        site, origin = self.request.headers.get("Sec-Fetch-Site"), self.request.headers.get("Origin")
        if site not in (None, "same-origin") or (
            origin is not None and origin.partition("//")[2] != self.request.host
        ):
            raise HTTPError(403, "a request from another site")
        RequestHandler.check_xsrf_cookie(self)

    def prepare(self) -> None:
        """Require the login before the method runs."""
        self._require_login()

    def _require_login(self) -> None:
        if not self.current_user:  # with basic authentication, the property raises 401
            raise HTTPError(403, "log in first")

    def who(self) -> str:
        """The user's name for the audit log, if Flower knows it."""
        if isinstance(self.current_user, str):
            return f"{self.current_user} (Flower)"
        if self.flower.options.basic_auth:
            _, _, credentials = self.request.headers.get("Authorization", "").partition(" ")
            return f"{b64decode(credentials).decode().partition(':')[0]} (Flower)"
        return "Flower"

    async def read(self, work: Callable[..., T], *arguments: Hashable) -> T:
        """The result of ``work`` in another thread, shared with concurrent equal requests."""
        return await self._answer(self.readers.readings.read(work, *arguments))

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of ``work`` in another thread, for this request only."""
        return await self._answer(self.readers.readings.submit(work, *arguments))

    async def _answer(self, reading: Future[T]) -> T:
        try:
            return await asyncio.shield(asyncio.wrap_future(reading))
        except (LaneNotFound, RunNotFound, TargetNotFound) as error:
            raise HTTPError(404, str(error)) from None
        except (RedisError, StoreUnavailable, OSError):
            raise HTTPError(503, "Redis does not answer") from None


class Page(Guarded):
    """A page of HTML. It sends a user without a login to the login page."""

    section = ""
    """The navigation entry of the page, with the list that it belongs to."""

    async def require(self, work: Callable[..., Any], *arguments: Hashable) -> None:
        """Send 404 if ``work`` does not find the page's subject. Without Redis the page still comes, and
        itself reports that Redis does not answer.
        """
        try:
            await self.read(work, *arguments)
        except HTTPError as error:
            if error.status_code != 503:
                raise

    def _require_login(self) -> None:
        if not self.current_user and self.request.method in ("GET", "HEAD"):
            self.redirect(f"{self.get_login_url()}?{urlencode({'next': self.request.uri})}")
            return
        super()._require_login()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send a page that names what is missing; Flower's own page for any other error."""
        error = kwargs.get("exc_info", (None, None))[1]
        if status_code != 404 or not isinstance(error, HTTPError) or not error.log_message:
            super().write_error(status_code, **kwargs)
            return
        # Backticks enclose every second part of a message.
        words = error.log_message.replace("%%", "%").split("`")
        self.render("fairlane_missing.html", words=words, section=self.section)


class Data(Guarded):
    """A JSON response, also for errors."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send the error as JSON."""
        error = kwargs.get("exc_info", (None, None))[1]
        if status_code == 401:
            self.set_header("WWW-Authenticate", 'Basic realm="flower"')
        message = error.log_message if isinstance(error, HTTPError) and error.log_message else "it failed"
        self.finish({"error": str(message).replace("%%", "%")})
