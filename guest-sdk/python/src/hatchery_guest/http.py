"""HTTP requests, to the hosts that the operator grants in ``hatchery.yaml``.

    from hatchery_guest import http

    page = await http.get("https://example.com/")
    made = await http.post("https://api.example.com/items", json={"name": "lamp"})
    made.error_for_status().json()

A request to a host that is not granted raises an ``Error`` with the code ``DENIED``. A limit of the component has the code
``LIMIT_REACHED``, any other failure ``HTTP_FAILED``. A status such as 404 is not an error. Up to five redirects are followed; each one is a
separate request, allowed or denied like any other. The host adds secrets that the operator configures: code sets no header for them.

Requests that are awaited together, for example with ``asyncio.gather``, run concurrently. ``urllib.request`` of the standard library works,
too; a call of it waits, and nothing else of the component runs meanwhile.

In unit tests, the function ``http`` of a ``testing.MockHost`` answers the requests.
"""

from __future__ import annotations

import builtins
import json as json_module
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypedDict, Union, Unpack
from urllib.parse import quote, urldefrag, urlencode, urljoin, urlsplit, urlunsplit

from .content import Json
from .errors import Error

HTTP_FAILED = "HTTP_FAILED"
"""Code of errors that are neither denials nor limits."""

MAX_REDIRECTS = 5


class Headers(Mapping[str, str]):
    """Headers. Names are in lower case, and are found in any case. Headers of one name are joined by commas."""

    def __init__(self, headers: HeaderList = ()) -> None:
        items = headers.items() if isinstance(headers, Mapping) else headers
        self._list = [(name.lower(), str(value)) for name, value in items]

    def __getitem__(self, name: str) -> str:
        values = self.all(name)
        if not values:
            raise KeyError(name)
        return ", ".join(values)

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._list))

    def __len__(self) -> int:
        return len(dict(self._list))

    def __repr__(self) -> str:
        return f"Headers({self._list!r})"

    def all(self, name: str) -> builtins.list[str]:
        """Returns the values of the headers of a name, as for ``set-cookie``."""
        return [value for known, value in self._list if known == name.lower()]

    def list(self) -> builtins.list[tuple[str, str]]:
        """Returns names and values."""
        return [*self._list]


HeaderList = Union[Mapping[str, str], Iterable[tuple[str, str]]]


@dataclass
class Request:
    """A request. Each redirect is a separate request."""

    method: str
    url: str
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    timeout: float | None = None
    """The seconds for connecting, until the first byte, and between two pieces of the response, each. Shorter limits of the operator take
    precedence."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Json:
        """Parses the body as JSON."""
        return json_module.loads(self.body)


@dataclass
class Response:
    """A response."""

    status: int = 200
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    url: str = ""
    """The URL of the response, after all redirects."""

    @classmethod
    def of(cls, body: str | bytes | Json, status: int = 200, headers: HeaderList = ()) -> Response:
        """Creates a response for a test: a string, bytes, or anything else as JSON."""
        kind, content = "application/octet-stream", b""
        if isinstance(body, str):
            kind, content = "text/plain; charset=utf-8", body.encode()
        elif not isinstance(body, bytes):
            kind, content = "application/json", json_module.dumps(body).encode()
        else:
            content = body
        return cls(status, Headers([("content-type", kind), *Headers(headers).list()]), content)

    @property
    def is_success(self) -> bool:
        """True for a status of 200 to 299."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text, in the character set of its type. Invalid bytes are replaced."""
        parts = self.headers.get("content-type", "").lower().partition("charset=")[2].split(";")
        try:
            return self.body.decode(parts[0].strip(" \"'") or "utf-8", errors="replace")
        except LookupError:
            return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Parses the body as JSON. Raises an ``Error`` with the code ``HTTP_FAILED`` if it is none."""
        try:
            return json_module.loads(self.body)
        except ValueError as error:
            raise _failed(f"{self.url} answered with unexpected JSON: {error}") from None

    def error_for_status(self) -> Response:
        """Returns this response if its status is 200 to 299. Raises an ``Error`` with the code ``HTTP_FAILED`` otherwise."""
        if not self.is_success:
            raise _failed(f"{self.url} answered with status {self.status}")
        return self


class RequestOptions(TypedDict, total=False):
    """The options of a request; see ``request``."""

    params: Mapping[str, Any] | Iterable[tuple[str, Any]]
    headers: HeaderList
    body: bytes | str
    json: Any
    timeout: float | None


async def get(url: str, **options: Unpack[RequestOptions]) -> Response:
    """Sends a GET request; see ``request``."""
    return await request("GET", url, **options)


async def post(url: str, **options: Unpack[RequestOptions]) -> Response:
    """Sends a POST request; see ``request``."""
    return await request("POST", url, **options)


async def put(url: str, **options: Unpack[RequestOptions]) -> Response:
    """Sends a PUT request; see ``request``."""
    return await request("PUT", url, **options)


async def patch(url: str, **options: Unpack[RequestOptions]) -> Response:
    """Sends a PATCH request; see ``request``."""
    return await request("PATCH", url, **options)


async def delete(url: str, **options: Unpack[RequestOptions]) -> Response:
    """Sends a DELETE request; see ``request``."""
    return await request("DELETE", url, **options)


async def request(
    method: str,
    url: str,
    *,
    params: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
    headers: HeaderList = (),
    body: bytes | str = b"",
    json: Any = None,
    timeout: float | None = None,
) -> Response:
    """Sends a request and returns the response, after up to five redirects.

    Args:
        method: The method, such as GET.
        url: The URL.
        params: Parameters to add to the query.
        headers: The headers.
        body: The body; a string is encoded as UTF-8.
        json: A value that becomes the body, with its content type.
        timeout: The seconds for connecting, until the first byte, and between two pieces of the response, each.
    """
    sent = Headers(headers)
    if json is not None:
        body = json_module.dumps(json, ensure_ascii=False)
        if "content-type" not in sent:
            sent = Headers([*sent.list(), ("content-type", "application/json")])
    content = body.encode() if isinstance(body, str) else bytes(body)
    current = Request(method.upper(), normalize(url, params), sent, content, timeout)
    for _ in range(MAX_REDIRECTS + 1):
        response = await _sender().send(current)
        response.url = current.url
        target = redirect(current, response)
        if target is None:
            return response
        current = target
    raise _failed(f"{url} was redirected more than {MAX_REDIRECTS} times")


def normalize(url: str, params: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> str:
    """Returns a URL as it is sent: with a path, without a fragment, with escaped characters."""
    scheme, host, path, query, _ = urlsplit(url)
    if scheme not in ("http", "https") or not host:
        raise _failed(f"`{url}` is not a URL; write it as `https://host/path`")
    added = urlencode([*params.items()] if isinstance(params, Mapping) else [*params], doseq=True)
    query = "&".join(each for each in (quote(query, safe="%/?:@!$&'()*+,;=-._~[]"), added) if each)
    return urlunsplit((scheme, host, quote(path, safe="%/:@!$&'()*+,;=-._~") or "/", query, ""))


def redirect(request: Request, response: Response) -> Request | None:
    """Returns the request that follows a redirect; ``None`` if the response is none."""
    location = response.headers.get("location")
    if response.status not in (301, 302, 303, 307, 308) or location is None:
        return None
    url, dropped = normalize(urldefrag(urljoin(request.url, location)).url), set()
    method, body = request.method, request.body
    if (response.status == 303 and method != "HEAD") or (response.status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        dropped = {name for name in request.headers if name.startswith("content-")}
    if urlsplit(url)[:2] != urlsplit(request.url)[:2]:
        # Credentials for one host must not be sent to another.
        dropped |= {"authorization", "cookie"}
    headers = Headers((name, value) for name, value in request.headers.list() if name not in dropped)
    return replace(request, method=method, url=url, headers=headers, body=body)


def _failed(message: str) -> Error:
    return Error(message, HTTP_FAILED)


class Sender(Protocol):
    """Sends a request and returns its response, without redirects."""

    async def send(self, request: Request) -> Response: ...


class _NoHost:
    async def send(self, _: Request) -> Response:
        raise _failed("there is no host here: in a unit test, give a MockHost a function in `http`, and use its context")


_current: ContextVar[Sender] = ContextVar("hatchery_http_sender")
_default: Sender = _NoHost()


def _sender() -> Sender:
    return _current.get(_default)


def use_by_default(sender: Sender) -> None:
    """Sets what sends the requests of a component."""
    global _default
    _default = sender


def use(sender: Sender) -> None:
    """Sets what sends the requests of a test."""
    _current.set(sender)
