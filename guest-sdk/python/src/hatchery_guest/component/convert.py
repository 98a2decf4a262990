"""Between the contract's types and those of authors. Nothing is lost either way."""

from __future__ import annotations

import json
from typing import Any

from wit_world.imports import types as wit

from ..content import (
    Blob, CodeExecutionResult, Content, Event, EventActions, ExecutableCode, FileData, FunctionCall, FunctionDeclaration,
    FunctionResponse, Json, LlmRequest, LlmResponse, Part, PartData, ToolCall, ToolConfirmation,
)  # fmt: skip


def to_json(value: Json) -> str:
    """A value as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def some_json(value: Json) -> str | None:
    """The same; nothing for nothing."""
    return to_json(value) if value else None


def some_value(text: str | None) -> dict[str, Json]:
    """An object of JSON text; an empty one for nothing."""
    return json.loads(text) if text else {}


def part_from_wit(part: wit.Part) -> Part:
    """A part."""
    return Part(_data_from_wit(part.data), part.thought, part.thought_signature, some_value(part.extra))


def _data_from_wit(data: wit.PartData) -> PartData:
    match data:
        case wit.PartData_Text(text):
            return text
        case wit.PartData_InlineData(blob):
            return Blob(blob.mime_type, blob.data, blob.display_name)
        case wit.PartData_FileData(file):
            return FileData(file.file_uri, file.mime_type, file.display_name)
        case wit.PartData_FunctionCall(call):
            return FunctionCall(call.name, json.loads(call.args), call.id, some_value(call.extra))
        case wit.PartData_FunctionResponse(given):
            return FunctionResponse(given.name, json.loads(given.response), given.id, some_value(given.extra))
        case wit.PartData_ExecutableCode(code):
            return ExecutableCode(code.code, code.language, some_value(code.extra))
        case wit.PartData_CodeExecutionResult(result):
            return CodeExecutionResult(result.outcome, result.output, some_value(result.extra))
    return None


def part_to_wit(part: Part) -> wit.Part:
    """A part."""
    return wit.Part(_data_to_wit(part.data), part.thought, part.thought_signature, some_json(part.extra))


def _data_to_wit(data: PartData) -> wit.PartData:
    match data:
        case None:
            return wit.PartData_Other()
        case str():
            return wit.PartData_Text(data)
        case Blob():
            return wit.PartData_InlineData(wit.Blob(data.mime_type, data.data, data.display_name))
        case FileData():
            return wit.PartData_FileData(wit.FileData(data.file_uri, data.mime_type, data.display_name))
        case FunctionCall():
            call = wit.FunctionCall(data.id, data.name, to_json(data.args), some_json(data.extra))
            return wit.PartData_FunctionCall(call)
        case FunctionResponse():
            given = wit.FunctionResponse(data.id, data.name, to_json(data.response), some_json(data.extra))
            return wit.PartData_FunctionResponse(given)
        case ExecutableCode():
            return wit.PartData_ExecutableCode(wit.ExecutableCode(data.language, data.code, some_json(data.extra)))
        case CodeExecutionResult():
            result = wit.CodeExecutionResult(data.outcome, data.output, some_json(data.extra))
            return wit.PartData_CodeExecutionResult(result)
    raise TypeError(f"a part holds text, a Blob, a FileData and the like, not a {type(data).__name__}")


def content_from_wit(content: wit.Content) -> Content:
    """A content."""
    return Content(content.role, [part_from_wit(part) for part in content.parts])


def content_to_wit(content: Content) -> wit.Content:
    """A content."""
    return wit.Content(content.role, [part_to_wit(part) for part in content.parts])


def _some(convert: Any, value: Any) -> Any:
    return None if value is None else convert(value)


def event_from_wit(event: wit.Event) -> Event:
    """An event."""
    actions = event.actions
    return Event(
        content=_some(content_from_wit, event.content),
        actions=EventActions(
            state_delta={key: json.loads(value) for key, value in actions.state_delta},
            artifact_delta=dict(actions.artifact_delta),
            skip_summarization=actions.skip_summarization,
            transfer_to_agent=actions.transfer_to_agent,
            escalate=actions.escalate,
            end_of_agent=actions.end_of_agent,
            extra=some_value(actions.extra),
        ),
        partial=event.partial,
        author=event.author,
        id=event.id,
        invocation_id=event.invocation_id,
        branch=event.branch,
        long_running_tool_ids=event.long_running_tool_ids,
        error_code=event.error_code,
        error_message=event.error_message,
        timestamp_micros=event.timestamp,
        extra=some_value(event.extra),
    )


def event_to_wit(event: Event) -> wit.Event:
    """An event."""
    actions = event.actions
    return wit.Event(
        event.id,
        event.invocation_id,
        event.author,
        _some(content_to_wit, event.content),
        wit.EventActions(
            [(key, to_json(value)) for key, value in actions.state_delta.items()],
            list(actions.artifact_delta.items()),
            actions.skip_summarization,
            actions.transfer_to_agent,
            actions.escalate,
            actions.end_of_agent,
            some_json(actions.extra),
        ),
        event.partial,
        event.branch,
        event.long_running_tool_ids,
        event.error_code,
        event.error_message,
        event.timestamp_micros,
        some_json(event.extra),
    )


def declaration_to_wit(tool: FunctionDeclaration) -> wit.FunctionDeclaration:
    """A declaration."""
    return wit.FunctionDeclaration(tool.name, tool.description, some_json(tool.parameters), some_json(tool.response))


def _declaration_from_wit(tool: wit.FunctionDeclaration) -> FunctionDeclaration:
    return FunctionDeclaration(
        tool.name, tool.description, _some(json.loads, tool.parameters), _some(json.loads, tool.response)
    )


def request_from_wit(request: wit.LlmRequest) -> LlmRequest:
    """A request."""
    return LlmRequest(
        [content_from_wit(content) for content in request.contents],
        list(request.system_instructions),
        request.model,
        [_declaration_from_wit(tool) for tool in request.tools],
        [json.loads(tool) for tool in request.model_tools],
        some_value(request.config),
    )


def request_to_wit(request: LlmRequest) -> wit.LlmRequest:
    """A request."""
    return wit.LlmRequest(
        request.model,
        [content_to_wit(content) for content in request.contents],
        request.system_instructions,
        [declaration_to_wit(tool) for tool in request.tools],
        [to_json(tool) for tool in request.model_tools],
        some_json(request.config),
    )


def response_from_wit(response: wit.LlmResponse) -> LlmResponse:
    """A response."""
    return LlmResponse(
        _some(content_from_wit, response.content),
        response.partial,
        response.finish_reason,
        response.error_code,
        response.error_message,
        some_value(response.extra),
    )


def response_to_wit(response: LlmResponse) -> wit.LlmResponse:
    """A response."""
    return wit.LlmResponse(
        _some(content_to_wit, response.content),
        response.partial,
        response.finish_reason,
        response.error_code,
        response.error_message,
        some_json(response.extra),
    )


def call_from_wit(call: wit.ToolCall) -> ToolCall:
    """A tool call."""
    return ToolCall(call.tool, json.loads(call.args))


def confirmation_from_wit(confirmation: wit.ToolConfirmation) -> ToolConfirmation:
    """A confirmation."""
    return ToolConfirmation(confirmation.hint, confirmation.confirmed, _some(json.loads, confirmation.payload))
