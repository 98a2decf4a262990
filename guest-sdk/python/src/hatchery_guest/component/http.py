"""HTTP through the host: ``hatchery_guest.http``, and ``urllib.request`` if the program has imported it."""

from __future__ import annotations

import sys

from componentize_py_types import Err
from wit_world.imports import http, sync_http
from wit_world.imports import types as wit

from ..http import Headers, Request, Response, use_by_default
from .host import to_exception


def request_to_wit(request: Request) -> wit.HttpRequest:
    timeout = None if request.timeout is None else max(int(request.timeout * 1e9), 0)
    return wit.HttpRequest(request.method, request.url, request.headers.list(), request.body, timeout)


def response_from_wit(response: wit.HttpResponse) -> Response:
    return Response(response.status, Headers(response.headers), response.body)


class ImportedSender:
    """Sends requests by the import of the component."""

    async def send(self, request: Request) -> Response:
        try:
            return response_from_wit(await http.send(request_to_wit(request)))
        except Err as error:
            raise to_exception(error.value) from None


def send_and_wait(request: Request) -> Response:
    """Sends a request. Nothing else of the instance runs until the response has arrived."""
    try:
        return response_from_wit(sync_http.send(request_to_wit(request)))
    except Err as error:
        raise to_exception(error.value) from None


def install() -> None:
    """Makes the host send the requests of the program."""
    use_by_default(ImportedSender())
    if "urllib.request" in sys.modules:
        from ..urllib_opener import install as install_opener

        install_opener(send_and_wait)
