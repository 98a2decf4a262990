"""Messages, events, and requests and responses of models. JSON values are Python values."""

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
    """A file that the model provider can fetch."""

    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


@dataclass
class FunctionCall:
    """A model's request to call a tool."""

    name: str
    args: dict[str, Json] = field(default_factory=dict)
    id: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class FunctionResponse:
    """The result of a tool call."""

    name: str
    response: dict[str, Json] = field(default_factory=dict)
    id: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class ExecutableCode:
    """Code that a model has written to be run."""

    code: str
    language: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class CodeExecutionResult:
    """The result of running code."""

    outcome: str | None = None
    output: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)


PartData = Union[str, Blob, FileData, FunctionCall, FunctionResponse, ExecutableCode, CodeExecutionResult, None]
"""The data of a part. ``None`` for a kind that this version does not know; its keys are in ``Part.extra``."""


@dataclass
class Part:
    """One part of a message."""

    data: PartData
    thought: bool = False
    thought_signature: bytes | None = None
    extra: dict[str, Json] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """The text of a text part, otherwise ``None``."""
        return self.data if isinstance(self.data, str) else None


@dataclass
class Content:
    """One message; ``role`` is ``user`` or ``model``."""

    role: str | None = None
    parts: list[Part] = field(default_factory=list)

    @staticmethod
    def user(text: str) -> "Content":
        """Creates a user message with one text."""
        return Content("user", [Part(text)])

    @staticmethod
    def model(text: str) -> "Content":
        """Creates a model message with one text."""
        return Content("model", [Part(text)])

    @property
    def text(self) -> str:
        """The text parts that are not thoughts, joined."""
        return "".join(part.text for part in self.parts if part.text is not None and not part.thought)

    @property
    def function_calls(self) -> list[FunctionCall]:
        """The function calls, in order."""
        return [part.data for part in self.parts if isinstance(part.data, FunctionCall)]

    @property
    def function_responses(self) -> list[FunctionResponse]:
        """The function responses, in order."""
        return [part.data for part in self.parts if isinstance(part.data, FunctionResponse)]


@dataclass
class EventActions:
    """The side effects of an event."""

    state_delta: dict[str, Json] = field(default_factory=dict)
    artifact_delta: dict[str, int] = field(default_factory=dict)
    deleted_artifact_ids: list[str] = field(default_factory=list)
    skip_summarization: bool | None = None
    transfer_to_agent: str | None = None
    escalate: bool | None = None
    end_of_agent: bool | None = None
    end_invocation: bool | None = None
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class Event:
    """One entry of a session's history. In a new event, leave ``id``, ``invocation_id``, ``author``, ``branch`` and
    ``timestamp_micros`` at their defaults: the host fills them in."""

    content: Content | None = None
    actions: EventActions = field(default_factory=EventActions)
    partial: bool = False
    turn_complete: bool | None = None
    interrupted: bool | None = None
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
    def of(output: "Event | Content | str") -> "Event":
        """Converts a string or a content to an event. An event is returned unchanged."""
        if isinstance(output, Event):
            return output
        if isinstance(output, Content):
            return Event(output)
        if isinstance(output, str):
            return Event.from_text(output)
        raise TypeError(f"an event is made from an event, a content or a string, not from a {type(output).__name__}")

    @staticmethod
    def from_text(text: str, *, partial: bool = False) -> "Event":
        """Creates an event with a text. After partial events, an event with the complete text must follow."""
        return Event(Content.model(text), partial=partial)

    @property
    def text(self) -> str:
        """The text of the message, without thoughts."""
        return self.content.text if self.content else ""

    @property
    def function_calls(self) -> list[FunctionCall]:
        """The function calls of the message, in order."""
        return self.content.function_calls if self.content else []

    @property
    def function_responses(self) -> list[FunctionResponse]:
        """The function responses of the message, in order."""
        return self.content.function_responses if self.content else []

    @property
    def has_trailing_code_execution_result(self) -> bool:
        """Whether the last part of the message is the result of code."""
        parts = self.content.parts if self.content else []
        return bool(parts) and isinstance(parts[-1].data, CodeExecutionResult)

    @property
    def is_final_response(self) -> bool:
        """Whether the agent has nothing more to do after this event: it is a response without open calls, a result that needs no summary,
        or a call whose result arrives later."""
        if self.actions.skip_summarization or self.long_running_tool_ids:
            return True
        is_open = self.partial or self.function_calls or self.function_responses or self.has_trailing_code_execution_result
        return not is_open


@dataclass
class FunctionDeclaration:
    """A tool as a model sees it; schemas are JSON Schemas."""

    name: str
    description: str = ""
    parameters: Json = None
    response: Json = None


@dataclass
class LlmRequest:
    """A request to a model. An empty ``model`` means the agent's own."""

    contents: list[Content] = field(default_factory=list)
    system_instructions: list[str] = field(default_factory=list)
    model: str = ""
    tools: list[FunctionDeclaration] = field(default_factory=list)
    model_tools: list[Json] = field(default_factory=list)
    config: dict[str, Json] = field(default_factory=dict)

    @staticmethod
    def from_prompt(
        prompt: "str | Content | LlmRequest", *, instruction: str | None = None, model: str = ""
    ) -> "LlmRequest":
        """Creates a request with one user message. A request is returned unchanged."""
        if isinstance(prompt, LlmRequest):
            return prompt
        content = Content.user(prompt) if isinstance(prompt, str) else prompt
        if not isinstance(content, Content):
            raise TypeError(f"a prompt is a string, a Content or an LlmRequest, not a {type(prompt).__name__}")
        return LlmRequest([content], [instruction] if instruction else [], model)


@dataclass
class LlmResponse:
    """A response of a model, or a chunk of it."""

    content: Content | None = None
    partial: bool = False
    turn_complete: bool | None = None
    interrupted: bool | None = None
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    extra: dict[str, Json] = field(default_factory=dict)

    @staticmethod
    def from_text(text: str) -> "LlmResponse":
        """Creates a response with one text."""
        return LlmResponse(Content.model(text))

    @property
    def text(self) -> str:
        """The text of the message, without thoughts."""
        return self.content.text if self.content else ""


@dataclass
class ToolCall:
    """A tool call, as callbacks see it."""

    tool: str
    args: dict[str, Json] = field(default_factory=dict)


@dataclass
class ToolConfirmation:
    """A question to a person about a tool call, and the answer."""

    hint: str
    confirmed: bool
    payload: Json = None


@dataclass
class ArtifactVersion:
    """A version of an artifact without its content."""

    version: int
    """From 0."""
    mime_type: str | None = None
    """IANA media type; ``None`` for text."""
    size: int = 0
    """The number of bytes that the host stores: 0 for a file elsewhere."""
    created_micros: int | None = None
    """When it was saved, in microseconds since 1970; ``None`` if the artifact service does not know it."""
    custom_metadata: dict[str, Any] = field(default_factory=dict)
    """The metadata that it was saved with."""


@dataclass
class MemoryEntry:
    """A message from an earlier session of the user."""

    content: Content
    author: str | None = None
    timestamp_micros: int = 0


Level = Literal["error", "warn", "info", "debug", "trace"]
