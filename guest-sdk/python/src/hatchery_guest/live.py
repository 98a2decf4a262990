"""Live conversations: their requests and messages, ``@live_model``, and live runs of other apps."""

from __future__ import annotations

import enum
import inspect
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Callable, Protocol, Union, overload

from .content import Blob, Content, Event, FunctionCall, FunctionResponse, Json, LlmRequest, Part
from .context import Context
from .errors import Error
from .signature import Signature, call_handler, handler_signature


class LiveSignal(enum.Enum):
    """A signal in a live conversation."""

    ACTIVITY_START = "activity_start"
    """The user begins to speak."""
    ACTIVITY_END = "activity_end"
    """The user stops speaking."""
    AUDIO_STREAM_END = "audio_stream_end"
    """The microphone is off."""
    INTERRUPTED = "interrupted"
    """The user has interrupted the model. From the model only."""
    TURN_COMPLETE = "turn_complete"
    """The model has finished its turn. From the model only."""


@dataclass
class LiveMessage:
    """A message of the user, or a part of one if ``partial`` is true."""

    content: Content
    partial: bool = False


@dataclass
class ToolResponses:
    """The results of tool calls, for a live model."""

    responses: list[FunctionResponse]


@dataclass
class Transcription:
    """A chunk of a transcript: new text only."""

    text: str
    finished: bool = False
    """Whether the utterance has ended."""
    of_input: bool = False
    """True for speech of the user, False for speech of the model."""


@dataclass
class ToolCalls:
    """Calls of tools, each with an id. Their results arrive as ``ToolResponses``."""

    calls: list[FunctionCall]


@dataclass
class ToolCallsCancelled:
    """The ids of tool calls whose results the model no longer expects."""

    ids: list[str]


@dataclass
class Usage:
    """The tokens that were used since the last report, as in Gemini's ``UsageMetadata``."""

    metadata: dict[str, Json]


LiveRequest = Union[LiveMessage, Blob, LiveSignal, ToolResponses]
"""A request of the user in a live conversation, or of the host to a live model."""

LiveResponse = Union[Content, Transcription, ToolCalls, ToolCallsCancelled, LiveSignal, Usage]
"""A response of a live model."""


class LiveConnection:
    """The connection of a live model: iterating over it returns the requests until it is closed."""

    def __init__(self, requests: AsyncIterator[LiveRequest], config: dict[str, Json] | None = None) -> None:
        self.config: dict[str, Json] = config or {}
        """The settings of the connection, as in Gemini's ``LiveConnectConfig``."""
        self._requests = requests

    def __aiter__(self) -> AsyncIterator[LiveRequest]:
        return self

    async def __anext__(self) -> LiveRequest:
        return await anext(self._requests)


@dataclass
class LiveModel:
    """A generator that converses."""

    name: str
    function: Callable[..., Any]
    signature: Signature

    async def responses(self, request: LlmRequest, connection: LiveConnection, cx: Context) -> AsyncGenerator[LiveResponse, None]:
        """Returns the responses of the model. Its generator advances as they are read, and is closed with them."""
        async with aclosing(call_handler(self.function, self.signature, cx, request, connection)) as output:
            async for piece in output:
                yield _to_response(piece)


def _to_response(piece: Any) -> LiveResponse:
    if isinstance(piece, str):
        piece = Part(piece)
    if isinstance(piece, Part):
        piece = Content("model", [piece])
    if isinstance(piece, (Content, Transcription, ToolCalls, ToolCallsCancelled, LiveSignal, Usage)):
        return piece
    raise TypeError(f"a live model yields strings, parts, contents, signals and other live responses, not a {type(piece).__name__}")


@overload
def live_model(function: Callable[..., Any]) -> LiveModel: ...
@overload
def live_model(*, name: str | None = None) -> Callable[[Callable[..., Any]], LiveModel]: ...
def live_model(function: Any = None, *, name: str | None = None) -> Any:
    """Turns an async generator into a live model, which agents refer to as ``component:NAME/model``: it takes an ``LlmRequest`` and a
    ``LiveConnection``, and yields what it says: strings, parts, contents, ``Transcription``, ``ToolCalls`` and signals."""

    def decorate(function: Callable[..., Any]) -> LiveModel:
        if not inspect.isasyncgenfunction(function):
            raise TypeError(f"live model `{function.__name__}` is not an async generator: write `async def` and `yield`")
        return LiveModel(name or function.__name__, function, handler_signature("live model", function, 2))

    return decorate if function is None else decorate(function)


@dataclass
class LiveRunRequest:
    """A request for a live run of an app. A new session is created if ``session`` is ``None`` or does not exist."""

    app: str
    session: str | None = None
    config: dict[str, Json] = field(default_factory=dict)
    """Settings of connections to live models, as in Gemini's ``LiveConnectConfig``."""


class LiveRequests(Protocol):
    """The sender of the requests of a live run."""

    async def send(self, request: LiveRequest) -> bool:
        """Sends a request. Returns ``False`` if the run accepts no more requests."""
        ...

    def close(self) -> None:
        """Closes the sender."""
        ...


class LiveRun:
    """A live run in progress: iterating over it returns its events, and ``turn_complete`` is true in the last one of a turn. A run that
    fails raises ``Error`` with its code. It ends with the call that opened it, or when it is closed."""

    def __init__(self, session: str, requests: LiveRequests, events: AsyncIterator[Event]) -> None:
        self.session = session
        self._requests = requests
        self._events = events

    async def send(self, request: LiveRequest | Content | str) -> None:
        """Sends a request; a string is a message. Waits while the run has too many unread ones.

        Raises ``Error`` with the code ``LIVE_CLOSED`` if the run takes no more; its events tell why.
        """
        if isinstance(request, str):
            request = Content.user(request)
        if isinstance(request, Content):
            request = LiveMessage(request)
        if not await self._requests.send(request):
            raise Error("the live run takes no more requests", "LIVE_CLOSED")

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        if event.error_code:
            raise Error(event.error_message or "", event.error_code)
        return event

    async def turn(self) -> list[Event]:
        """Returns the events up to the end of a turn, or of the run."""
        events = []
        async for event in self:
            events.append(event)
            if event.turn_complete:
                break
        return events

    def close(self) -> None:
        """Closes the queue of requests. A text model still answers earlier messages, a live model closes the conversation."""
        self._requests.close()

    async def aclose(self) -> None:
        """Cancels the run, and reads no more events."""
        self.close()
        close = getattr(self._events, "aclose", None)
        if close:
            await close()
