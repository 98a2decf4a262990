"""``urllib.request`` over the host's HTTP."""

from __future__ import annotations

import email.message
import http.client
import io
import urllib.error
import urllib.request
import urllib.response
from collections.abc import Callable

from .errors import Error
from .http import Headers, Request, Response

Send = Callable[[Request], Response]


class HostHandler(urllib.request.AbstractHTTPHandler):
    """Opens the URLs of web servers. An ``Error`` of the host is the reason of a ``URLError``."""

    handler_order = 100
    """Before the handlers that use sockets."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def http_open(self, request: urllib.request.Request) -> urllib.response.addinfourl:
        data = request.data
        if data is not None and not isinstance(data, bytes):
            data = data.read() if hasattr(data, "read") else b"".join(data)
        timeout = request.timeout if isinstance(request.timeout, (int, float)) else None
        # The host sets these.
        unsent = {"host", "connection", "content-length"}
        headers = Headers((name, value) for name, value in request.header_items() if name.lower() not in unsent)
        try:
            response = self._send(Request(request.get_method(), request.full_url, headers, data or b"", timeout))
        except Error as error:
            raise urllib.error.URLError(error) from None
        message = email.message.Message()
        for name, value in response.headers.list():
            message[name] = value
        opened = urllib.response.addinfourl(io.BytesIO(response.body), message, request.full_url, response.status)
        opened.msg = http.client.responses.get(response.status, "")
        return opened

    https_open = http_open
    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_


def install(send: Send) -> None:
    """Makes ``urllib.request.urlopen`` use the host."""
    urllib.request.install_opener(urllib.request.build_opener(HostHandler(send)))
