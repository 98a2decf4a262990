"""Runs of other apps, for the user of the current run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import schema
from .content import Content, Event, Json
from .errors import Error

if TYPE_CHECKING:
    from .context import Host
    from .live import LiveRun, LiveRunRequest


@dataclass(init=False)
class RunRequest:
    """A request for a run of an app. A new session is created if ``session`` is ``None`` or does not exist."""

    app: str
    message: Content
    session: str | None
    state_delta: dict[str, Json]
    """State keys that are set with the message; ``None`` deletes a key."""
    streaming: bool
    """Whether the run yields partial events while a model responds."""

    def __init__(
        self,
        app: str,
        message: str | Content,
        session: str | None = None,
        state_delta: Mapping[str, Any] | None = None,
        streaming: bool = False,
    ) -> None:
        self.app = app
        self.message = Content.user(message) if isinstance(message, str) else message
        self.session = session
        self.state_delta = schema.dump(dict(state_delta or {}))
        self.streaming = streaming


class Run:
    """A run in progress: iterating over it returns its events. A run that fails raises ``Error`` with its code. It ends with the call
    that started it, or when it is closed."""

    def __init__(self, host: Host, invocation_id: str, session: str, events: AsyncIterator[Event]) -> None:
        self.invocation_id = invocation_id
        self.session = session
        self._host = host
        self._events = events

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        if event.error_code:
            raise Error(event.error_message or "", event.error_code)
        return event

    async def text(self) -> str:
        """Waits for the end of the run, and returns the text of its last message."""
        text = ""
        async for event in self:
            if not event.partial and event.content:
                text = event.text
        return text

    def cancel(self) -> None:
        """Cancels the run. Its events end with an error."""
        self._host.cancel_run(self.invocation_id)

    async def aclose(self) -> None:
        """Cancels the run, and reads no more events."""
        close = getattr(self._events, "aclose", None)
        if close:
            await close()


class Runner:
    """Access to other apps. Every method raises ``Error`` if the component is not allowed to run the app."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def list_apps(self) -> list[str]:
        """Returns the names of the apps that the component may run, sorted."""
        return self._host.list_apps()

    async def run(self, request: RunRequest) -> Run:
        """Starts a run. Its model calls, tokens and events count towards the current run.

        Raises ``Error`` with the code ``CYCLE`` if the session belongs to the current run or to a run around it.
        """
        return await self._host.run_app(request)

    async def run_live(self, request: LiveRunRequest) -> LiveRun:
        """Opens a live run, whose requests are sent while it is in progress. An app with a text model answers message by message. For
        everything else ``run`` applies."""
        return await self._host.run_app_live(request)
