"""Other sessions of the user."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import schema
from .content import Content, Event, Json

if TYPE_CHECKING:
    from .context import Host


@dataclass
class SessionInfo:
    """A session without its events. Times are in microseconds since 1970."""

    app: str
    id: str
    state: dict[str, Json] = field(default_factory=dict)
    """The state that the component may read."""
    event_count: int = 0
    """The number of events that were ever appended."""
    created_micros: int = 0
    updated_micros: int = 0
    """The time of the newest event, or of the creation."""


@dataclass
class EventWindow:
    """A part of the events of a session, by default all. If both fields are set, both apply."""

    recent: int | None = None
    """The newest events, up to this number."""
    after_micros: int | None = None
    """The events at or after this time, in microseconds since 1970."""


MAX_LIMIT = 2**32 - 1
"""The largest number of items that one call can return."""


def check_range(offset: int, limit: int) -> None:
    """Raises ``ValueError`` for an offset or a limit that the contract cannot express."""
    if offset < 0:
        raise ValueError(f"`offset` is a number from 0 on, not {offset}")
    if not 0 <= limit <= MAX_LIMIT:
        raise ValueError(f"`limit` is a number from 0 to {MAX_LIMIT}, not {limit}")


class Sessions:
    """Access to the sessions of the current run's user in one app. Every method raises ``Error`` if the component is not allowed to use
    them. The session of the current run can be read, but not changed: its agents emit events instead."""

    def __init__(self, host: Host, app: str) -> None:
        self._host = host
        self.app = app

    async def create(self, id: str | None = None, state: dict[str, Any] | None = None) -> SessionInfo:
        """Creates a session; with a new id if it is ``None``."""
        return await self._host.create_session(self.app, id, schema.dump(state or {}))

    async def get(self, id: str) -> SessionInfo | None:
        """Returns a session, or ``None`` if it does not exist."""
        return await self._host.get_session(self.app, id)

    async def list(self, offset: int = 0, limit: int = 100) -> builtins.list[SessionInfo]:
        """Returns up to ``limit`` sessions from number ``offset`` on, most recently updated first."""
        check_range(offset, limit)
        return await self._host.list_sessions(self.app, offset, limit)

    async def events(self, id: str, window: EventWindow | None = None, offset: int = 0, limit: int = 100) -> builtins.list[Event]:
        """Returns up to ``limit`` events of a window from number ``offset`` on, oldest first; fewer if they are long."""
        check_range(offset, limit)
        return await self._host.session_events(self.app, id, window or EventWindow(), offset, limit)

    async def append(self, id: str, event: Event | Content | str) -> Event:
        """Appends an event of the current agent, and returns it as it was stored. Function calls and confirmation requests in it are
        never acted on."""
        return await self._host.append_event(self.app, id, Event.of(event))

    async def delete(self, id: str) -> None:
        """Deletes a session and its events. Does nothing if it does not exist."""
        await self._host.delete_session(self.app, id)
