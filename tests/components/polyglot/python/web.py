"""Tools that send HTTP requests and wait."""

import asyncio
import urllib.error
import urllib.request

from hatchery_guest import Error, http, tool


@tool
async def visit(url: str, method: str = "GET", header: str = "", body: str = "") -> dict:
    """Sends a request. The header is `x-one`. Returns what has arrived, or the error."""
    try:
        headers = {"x-one": header} if header else {}
        response = await http.request(method, url, headers=headers, body=body)
        return {"status": response.status, "url": response.url, "type": response.headers.get("content-type"), "text": response.text}
    except Error as error:
        return {"code": error.code, "error": error.message}


@tool
async def visit_all(urls: list[str]) -> list:
    """Sends requests together, and returns their statuses."""
    return [response.status for response in await asyncio.gather(*map(http.get, urls))]


@tool
async def wait_in_turn() -> list:
    """Returns the names of timers in the order in which they have fired."""
    fired: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        fired.append(name)

    await asyncio.gather(wait("late", 0.05), wait("early", 0.001), wait("at once", 0))
    return fired


@tool
async def give_up(endless: str, other: str) -> list:
    """Cancels a request after a time, and sends another one."""
    try:
        async with asyncio.timeout(0.01):
            await http.get(endless)
        outcome = "answered"
    except TimeoutError:
        outcome = "given up"
    return [outcome, (await http.get(other)).status]


@tool
def open_page(url: str) -> list:
    """Opens a page with urllib."""
    try:
        with urllib.request.urlopen(url, data=b"hello") as response:
            return [response.status, response.read().decode()]
    except urllib.error.HTTPError as error:
        return [error.code, error.read().decode()]
    except urllib.error.URLError as error:
        return [getattr(error.reason, "code", ""), str(error.reason)]
