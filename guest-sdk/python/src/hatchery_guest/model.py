"""``@model``: turns a generator into a model, which agents refer to as ``component:NAME/model``."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Callable, overload

from .content import Content, LlmRequest, LlmResponse, Part
from .context import Context
from .signature import Signature, call_handler, handler_signature


@dataclass
class Model:
    """A function that answers requests."""

    name: str
    function: Callable[..., Any]
    signature: Signature

    async def responses(self, request: LlmRequest, cx: Context) -> AsyncGenerator[LlmResponse, None]:
        """Streams the answer: partial responses, each of which contains only new content. Closing it closes the model's generator."""
        output = call_handler(self.function, self.signature, cx, request)
        if inspect.isasyncgen(output):
            async with aclosing(output):
                async for piece in output:
                    yield _to_response(piece)
        elif inspect.isgenerator(output):
            for piece in output:
                yield _to_response(piece)
        else:
            yield _to_response(await output if inspect.isawaitable(output) else output)

    async def answer(self, request: LlmRequest, cx: Context) -> LlmResponse:
        """Returns the complete answer."""
        complete = LlmResponse()
        async for response in self.responses(request, cx):
            _add(complete, response)
        return complete


def _to_response(piece: Any) -> LlmResponse:
    if isinstance(piece, LlmResponse):
        return piece
    if isinstance(piece, str):
        piece = Part(piece)
    if isinstance(piece, Part):
        piece = Content("model", [piece])
    if isinstance(piece, Content):
        return LlmResponse(piece)
    raise TypeError(f"a model yields strings, parts, contents or responses, not a {type(piece).__name__}")


def _add(complete: LlmResponse, response: LlmResponse) -> None:
    """Merges a partial response into the complete one."""
    for field in ("finish_reason", "error_code", "error_message", "turn_complete", "interrupted"):
        if getattr(response, field) is not None:
            setattr(complete, field, getattr(response, field))
    complete.extra |= response.extra
    if response.content:
        if complete.content is None:
            complete.content = Content(response.content.role)
        for part in response.content.parts:
            _add_part(complete.content.parts, part)


def _add_part(parts: list[Part], part: Part) -> None:
    """Adds a part. A text that continues the last text part is appended to it."""
    last = parts[-1] if parts else None
    continues = last is not None and last.text is not None and part.text is not None and last.thought_signature is None
    if last is not None and continues and (last.thought, last.extra) == (part.thought, part.extra):
        parts[-1] = replace(part, data=f"{last.text}{part.text}")
    else:
        parts.append(part)


@overload
def model(function: Callable[..., Any]) -> Model: ...
@overload
def model(*, name: str | None = None) -> Callable[[Callable[..., Any]], Model]: ...
def model(function: Any = None, *, name: str | None = None) -> Any:
    """Turns a generator, async or not, into a model: it takes an ``LlmRequest`` and yields the answer piece by piece, as strings, parts,
    contents or responses. For a request without streaming, the pieces are joined. A function that returns a whole answer works, too."""

    def decorate(function: Callable[..., Any]) -> Model:
        return Model(name or function.__name__, function, handler_signature("model", function, 1))

    return decorate if function is None else decorate(function)
