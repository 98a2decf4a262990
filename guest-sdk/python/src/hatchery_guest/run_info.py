"""The run in which code is called: its properties, its remaining limits, and its plugins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

StreamingMode = Literal["none", "sse", "bidi"]
"""How the client receives the responses of models: as one, as chunks, or as chunks of a live connection in both directions."""


@dataclass
class RemainingLimits:
    """The remaining limits of a run; ``None`` means no limit."""

    model_calls: int | None = None
    tokens: int | None = None
    events: int | None = None
    bytes: int | None = None
    """Bytes of the JSON of events."""


@dataclass
class RunInfo:
    """The call in which code runs."""

    app: str
    user: str
    session: str
    invocation_id: str
    agent: str
    branch: str | None = None
    function_call_id: str | None = None
    streaming_mode: StreamingMode = "none"
    is_resumable: bool = False
    """True if the run can pause and be continued later."""
    depth: int = 0
    """The number of runs that this run is nested in: 0 for the run of a user's message."""
    remaining: RemainingLimits = field(default_factory=RemainingLimits)


@dataclass
class PluginInfo:
    """A plugin of a run."""

    name: str
    hooks: list[str] = field(default_factory=list)
    """The names of its hooks, as in ``on_event``; empty for a plugin of the host."""
    component: str | None = None
    """The component that exports it; ``None`` for a plugin of the host."""
