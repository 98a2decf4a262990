"""An MCP server of a small library, over standard input and output, with Python's standard library only."""

import json
import sys

BOOKS = [
    {"title": "Frankenstein", "author": "Mary Shelley", "shelf": "S4", "copies": 2},
    {"title": "Middlemarch", "author": "George Eliot", "shelf": "E1", "copies": 0},
    {"title": "The Time Machine", "author": "H. G. Wells", "shelf": "W2", "copies": 1},
]

TOOLS = [
    {
        "name": "find_book",
        "description": "Finds a book by a part of its title or of its author's name.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "borrow",
        "description": "Borrows a book.",
        "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
    },
]


def find_book(text):
    text = text.strip().lower()
    return next((book for book in BOOKS if text in book["title"].lower() or text in book["author"].lower()), None)


def call(name, arguments):
    book = find_book(arguments.get("text") or arguments.get("title") or "")
    if book is None:
        return {"content": [{"type": "text", "text": "the library has no such book"}], "isError": True}
    if name == "borrow":
        if book["copies"] == 0:
            return {"content": [{"type": "text", "text": "all copies are lent"}], "isError": True}
        book["copies"] -= 1
    return {"content": [], "structuredContent": book}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "library", "version": "1.0"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    return {}


for line in sys.stdin:
    message = json.loads(line)
    # Notifications have no id and get no answer.
    if "id" in message:
        result = answer(message.get("method"), message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
