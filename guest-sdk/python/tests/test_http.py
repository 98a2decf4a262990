"""HTTP with a mock host: requests, redirects, errors, and ``urllib.request``."""

import asyncio
import unittest
import urllib.error
import urllib.request
from typing import Any

from hatchery_guest import Error, ToolContext, http, tool
from hatchery_guest.http import Headers, Request, Response
from hatchery_guest.testing import MockHost, run


@tool
async def weather(cx: ToolContext, city: str = "Köln") -> Any:
    """Returns the weather."""
    response = await http.get("https://api.example.com/today", params={"city": city}, headers={"X-One": "1"}, timeout=2)
    return response.error_for_status().json()


@tool
def page(cx: ToolContext, url: str, body: str = "") -> list:
    """Returns the status, a header and the text of a page."""
    request = urllib.request.Request(url, data=body.encode() or None, headers={"X-One": "1"})
    with urllib.request.urlopen(request, timeout=3) as response:
        return [response.status, response.headers["X-Two"], response.read().decode(), response.url]


class Requests(unittest.TestCase):
    def test_a_request_is_sent_by_the_host(self) -> None:
        host = MockHost(http=lambda request: Response.of({"degrees": 21}))
        self.assertEqual(run(weather.call({}, host.tool_context())), {"degrees": 21})
        sent = host.http_requests[0]
        self.assertEqual((sent.method, sent.url, sent.timeout), ("GET", "https://api.example.com/today?city=K%C3%B6ln", 2))
        self.assertEqual((sent.headers["X-ONE"], sent.body), ("1", b""))

    def test_json_and_texts_become_bodies(self) -> None:
        host = MockHost(http=lambda request: Response.of(request.body, 201))
        host.context()
        made = run(http.post("https://a.com", json={"name": "Köln"}))
        self.assertEqual((made.status, made.json(), made.url), (201, {"name": "Köln"}, "https://a.com/"))
        self.assertEqual(host.http_requests[0].headers["content-type"], "application/json")
        self.assertEqual(run(http.put("https://a.com/x", body="é", headers=[("a", "1"), ("A", "2")])).body, "é".encode())
        self.assertEqual((host.http_requests[1].headers["a"], host.http_requests[1].headers.all("A")), ("1, 2", ["1", "2"]))
        for method, send in [("PATCH", http.patch), ("DELETE", http.delete)]:
            run(send("https://a.com"))
            self.assertEqual(host.http_requests[-1].method, method)

    def test_urls_are_escaped(self) -> None:
        for url, sent in [
            ("https://a.com", "https://a.com/"),
            ("https://a.com/ä b/%41?q=ü 1&x=%20#top", "https://a.com/%C3%A4%20b/%41?q=%C3%BC%201&x=%20"),
        ]:
            self.assertEqual(http.normalize(url), sent)
        self.assertEqual(http.normalize("http://a.com/x?a=1", [("b", "2 3"), ("b", ["4", "5"])]), "http://a.com/x?a=1&b=2+3&b=4&b=5")
        for url in ["a.com", "ftp://a.com", "https:///x"]:
            with self.assertRaisesRegex(Error, r"is not a URL; write it as `https://host/path`$"):
                http.normalize(url)

    def test_texts_are_decoded_in_their_character_set(self) -> None:
        self.assertEqual(Response(body=b"\xe9", headers=Headers({"Content-Type": "text/plain; charset=ISO-8859-1"})).text, "é")
        self.assertEqual(Response(body="é\xff".encode()).text, "éÿ")
        self.assertEqual(Response(body=b"\xff", headers=Headers({"content-type": "text/plain; charset=none"})).text, "\ufffd")

    def test_a_status_is_an_error_only_on_request(self) -> None:
        host = MockHost(http=lambda request: Response.of("no", 503))
        host.context()
        self.assertFalse(run(http.get("https://a.com")).is_success)
        with self.assertRaises(Error) as raised:
            run(weather.call({}, host.tool_context()))
        self.assertEqual(raised.exception.code, "HTTP_FAILED")
        self.assertEqual(str(raised.exception), "https://api.example.com/today?city=K%C3%B6ln answered with status 503")
        with self.assertRaisesRegex(Error, "^https://a.com/ answered with unexpected JSON: "):
            run(http.get("https://a.com")).json()

    def test_redirects_are_followed_without_the_credentials_of_another_host(self) -> None:
        targets = {"/a": ("https://a.com/b", 302), "/b": ("https://b.com/c", 307), "/loop": ("/loop", 301)}

        def answer(request: Request) -> Response:
            location, status = targets.get("/" + request.url.split("/")[3], (None, 200))
            return Response(status, Headers({"Location": location} if location else {}), b"there")

        host = MockHost(http=answer)
        host.context()
        end = run(http.post("https://a.com/a", json=1, headers={"Authorization": "mine", "Accept": "*/*"}))
        self.assertEqual((end.text, end.url), ("there", "https://b.com/c"))
        self.assertEqual(
            [(each.method, sorted(each.headers), each.body) for each in host.http_requests],
            [
                ("POST", ["accept", "authorization", "content-type"], b"1"), ("GET", ["accept", "authorization"], b""),
                ("GET", ["accept"], b""),
            ],
        )  # fmt: skip
        with self.assertRaisesRegex(Error, "^https://a.com/loop was redirected more than 5 times$"):
            run(http.get("https://a.com/loop"))

    def test_requests_run_together(self) -> None:
        host = MockHost(http=lambda request: Response.of(request.url))
        host.context()

        async def both() -> list[str]:
            return [each.text for each in await asyncio.gather(http.get("https://a.com/1"), http.get("https://a.com/2"))]

        self.assertEqual(run(both()), ["https://a.com/1", "https://a.com/2"])

    def test_a_request_without_an_answer_of_the_test_fails(self) -> None:
        with self.assertRaises(Error) as raised:
            run(weather.call({}, MockHost().tool_context()))
        message = "no response to `GET https://api.example.com/today?city=K%C3%B6ln`; give MockHost a function in `http`"
        self.assertEqual((raised.exception.code, str(raised.exception)), ("HTTP_FAILED", message))


class Urllib(unittest.TestCase):
    def test_a_page_is_opened_through_the_host(self) -> None:
        def answer(request: Request) -> Response:
            if request.url.endswith("/old"):
                return Response(301, Headers({"Location": "/new"}))
            return Response.of("hello", headers={"X-Two": "2"})

        host = MockHost(http=answer)
        opened = run(page.call({"url": "https://a.com/old"}, host.tool_context()))
        self.assertEqual(opened, [200, "2", "hello", "https://a.com/new"])
        run(page.call({"url": "https://a.com/new", "body": "x"}, host.tool_context()))
        sent = host.http_requests[-1]
        self.assertEqual((sent.method, sent.body, sent.timeout, sent.headers["X-One"]), ("POST", b"x", 3, "1"))
        self.assertEqual(sorted(sent.headers), ["content-type", "user-agent", "x-one"])

    def test_errors_are_those_of_urllib(self) -> None:
        with self.assertRaises(urllib.error.HTTPError) as raised:
            run(page.call({"url": "https://a.com"}, MockHost(http=lambda request: Response.of("no", 404)).tool_context()))
        self.assertEqual((raised.exception.code, raised.exception.reason, raised.exception.read()), (404, "Not Found", b"no"))

        def deny(_: Request) -> Response:
            raise Error("component `x` may not", "DENIED")

        with self.assertRaises(urllib.error.URLError) as raised:
            run(page.call({"url": "https://a.com"}, MockHost(http=deny).tool_context()))
        self.assertEqual(raised.exception.reason.code, "DENIED")


if __name__ == "__main__":
    unittest.main()
