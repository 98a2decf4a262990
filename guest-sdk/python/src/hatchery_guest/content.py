"""What is said: contents, events, and what models are asked and answer. Plain data, with JSON values as Python values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Union

Json = Any
"""``None``, ``bool``, ``int``, ``float``, ``str``, or a ``list`` or ``dict`` of them."""


@dataclass
class Blob:
    """Bytes with their media type, such as ``image/png``."""

    mime_type: str
    data: bytes
    display_name: str | None = None


@dataclass
class FileData:
    """A file that a model can fetch by itself."""

    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


@dataclass
class FunctionCall:
    """A model's request to run a tool."""

    name: str
    args: dict[str, Json] = field(default_factory=dict)
    id: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class FunctionResponse:
    """A tool's answer."""

    name: str
    response: dict[str, Json] = field(default_factory=dict)
    id: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class ExecutableCode:
    """Code that a model wants to run."""

    code: str
    language: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class CodeExecutionResult:
    """What running code gave."""

    outcome: str | None = None
    output: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)


PartData = Union[str, Blob, FileData, FunctionCall, FunctionResponse, ExecutableCode, CodeExecutionResult, None]
"""What a part holds; ``None`` for what this version does not know and keeps in ``extra``."""


@dataclass
class Part:
    """One piece of a message."""

    data: PartData
    thought: bool = False
    thought_signature: bytes | None = None
    extra: dict[str, Json] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """Its text, when it is text."""
        return self.data if isinstance(self.data, str) else None


@dataclass
class Content:
    """One message of a conversation; ``role`` is ``user`` or ``model``."""

    role: str | None = None
    parts: list[Part] = field(default_factory=list)

    @staticmethod
    def user(text: str) -> "Content":
        """What a user says."""
        return Content("user", [Part(text)])

    @staticmethod
    def model(text: str) -> "Content":
        """What a model says."""
        return Content("model", [Part(text)])

    @property
    def text(self) -> str:
        """All its text, without thoughts."""
        return "".join(part.text for part in self.parts if part.text is not None and not part.thought)


@dataclass
class EventActions:
    """What an event does beside saying something."""

    state_delta: dict[str, Json] = field(default_factory=dict)
    artifact_delta: dict[str, int] = field(default_factory=dict)
    skip_summarization: bool | None = None
    transfer_to_agent: str | None = None
    escalate: bool | None = None
    end_of_agent: bool | None = None
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class Event:
    """One entry of a session's history, or one item of what a run yields. What is left empty the host fills in."""

    content: Content | None = None
    actions: EventActions = field(default_factory=EventActions)
    partial: bool = False
    author: str = ""
    id: str = ""
    invocation_id: str = ""
    branch: str | None = None
    long_running_tool_ids: list[str] = field(default_factory=list)
    error_code: str | None = None
    error_message: str | None = None
    timestamp_micros: int = 0
    extra: dict[str, Json] = field(default_factory=dict)

    @staticmethod
    def say(text: str, *, partial: bool = False) -> "Event":
        """An event that says a text; ``partial`` for a piece of a text that follows as a whole."""
        return Event(Content.model(text), partial=partial)

    @property
    def text(self) -> str:
        """What it says."""
        return self.content.text if self.content else ""


@dataclass
class FunctionDeclaration:
    """A tool as a model sees it; schemas are JSON Schemas."""

    name: str
    description: str = ""
    parameters: Json = None
    response: Json = None


@dataclass
class LlmRequest:
    """What a model is asked. An empty ``model`` stands for the agent's own."""

    contents: list[Content] = field(default_factory=list)
    system_instructions: list[str] = field(default_factory=list)
    model: str = ""
    tools: list[FunctionDeclaration] = field(default_factory=list)
    model_tools: list[Json] = field(default_factory=list)
    config: dict[str, Json] = field(default_factory=dict)

    @staticmethod
    def of(prompt: "str | Content | LlmRequest", *, instruction: str | None = None, model: str = "") -> "LlmRequest":
        """A request that says ``prompt`` for the user."""
        if isinstance(prompt, LlmRequest):
            return prompt
        content = Content.user(prompt) if isinstance(prompt, str) else prompt
        return LlmRequest([content], [instruction] if instruction else [], model)


@dataclass
class LlmResponse:
    """What a model answers, or a piece of it."""

    content: Content | None = None
    partial: bool = False
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)

    @staticmethod
    def say(text: str) -> "LlmResponse":
        """An answer of one text."""
        return LlmResponse(Content.model(text))

    @property
    def text(self) -> str:
        """What it says, without thoughts."""
        return self.content.text if self.content else ""


@dataclass
class ToolCall:
    """A tool call, as callbacks see it."""

    tool: str
    args: dict[str, Json] = field(default_factory=dict)


@dataclass
class ToolConfirmation:
    """What a person was asked about a tool call, and what they have decided."""

    hint: str
    confirmed: bool
    payload: Json = None


@dataclass
class RunInfo:
    """Where code runs."""

    app: str
    user: str
    session: str
    invocation_id: str
    agent: str
    branch: str | None = None
    function_call_id: str | None = None


@dataclass
class MemoryEntry:
    """Something said in an earlier session of the user."""

    content: Content
    author: str | None = None
    timestamp_micros: int = 0


Level = Literal["error", "warn", "info", "debug", "trace"]
