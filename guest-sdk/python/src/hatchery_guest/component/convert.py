"""Lossless conversion between the types of the contract and the types of authors."""

from __future__ import annotations

import json
from typing import Any

from wit_world.imports import types as wit

from ..content import (
    Blob, CodeExecutionResult, Content, Event, EventActions, ExecutableCode, FileData, FunctionCall, FunctionDeclaration,
    FunctionResponse, Json, LlmRequest, LlmResponse, Part, PartData, ToolCall, ToolConfirmation,
)  # fmt: skip
from ..examples import Example
from ..run_info import PluginInfo
from ..runner import RunRequest
from ..sessions import EventWindow, SessionInfo


def to_json(value: Json) -> str:
    """Serializes a value. Raises a ``ValueError`` for NaN and infinite numbers, which JSON does not have."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_optional_json(value: Json) -> str | None:
    """Serializes a value; ``None`` if it is empty."""
    return to_json(value) if value else None


def parse_object(text: str | None) -> dict[str, Json]:
    """Parses an optional JSON object; empty if it is absent."""
    return json.loads(text) if text else {}


def part_from_wit(part: wit.Part) -> Part:
    return Part(_data_from_wit(part.data), part.thought, part.thought_signature, parse_object(part.extra))


def _data_from_wit(data: wit.PartData) -> PartData:
    match data:
        case wit.PartData_Text(text):
            return text
        case wit.PartData_InlineData(blob):
            return Blob(blob.mime_type, blob.data, blob.display_name)
        case wit.PartData_FileData(file):
            return FileData(file.file_uri, file.mime_type, file.display_name)
        case wit.PartData_FunctionCall(call):
            return FunctionCall(call.name, json.loads(call.args), call.id, parse_object(call.extra))
        case wit.PartData_FunctionResponse(response):
            return function_response_from_wit(response)
        case wit.PartData_ExecutableCode(code):
            return ExecutableCode(code.code, code.language, parse_object(code.extra))
        case wit.PartData_CodeExecutionResult(result):
            return CodeExecutionResult(result.outcome, result.output, parse_object(result.extra))
    return None


def function_response_from_wit(response: wit.FunctionResponse) -> FunctionResponse:
    return FunctionResponse(response.name, json.loads(response.response), response.id, parse_object(response.extra))


def function_response_to_wit(response: FunctionResponse) -> wit.FunctionResponse:
    return wit.FunctionResponse(response.id, response.name, to_json(response.response), to_optional_json(response.extra))


def function_call_to_wit(call: FunctionCall) -> wit.FunctionCall:
    return wit.FunctionCall(call.id, call.name, to_json(call.args), to_optional_json(call.extra))


def part_to_wit(part: Part) -> wit.Part:
    if not isinstance(part, Part):
        raise TypeError(f"the parts of a Content are a list of Part objects, not of type {type(part).__name__}; write Part(…)")
    return wit.Part(_data_to_wit(part.data), part.thought, part.thought_signature, to_optional_json(part.extra))


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
            return wit.PartData_FunctionCall(function_call_to_wit(data))
        case FunctionResponse():
            return wit.PartData_FunctionResponse(function_response_to_wit(data))
        case ExecutableCode():
            return wit.PartData_ExecutableCode(wit.ExecutableCode(data.language, data.code, to_optional_json(data.extra)))
        case CodeExecutionResult():
            result = wit.CodeExecutionResult(data.outcome, data.output, to_optional_json(data.extra))
            return wit.PartData_CodeExecutionResult(result)
    raise TypeError(f"the data of a part must be a str, a Blob, a FileData or another type of PartData, not a {type(data).__name__}")


def content_from_wit(content: wit.Content) -> Content:
    return Content(content.role, [part_from_wit(part) for part in content.parts])


def content_to_wit(content: Content) -> wit.Content:
    if not isinstance(content, Content):
        raise TypeError(f"a message is a Content, not a {type(content).__name__}; Content.model(text) and Content.user(text) create one")
    return wit.Content(content.role, [part_to_wit(part) for part in content.parts])


def _optional(convert: Any, value: Any) -> Any:
    return None if value is None else convert(value)


def event_from_wit(event: wit.Event) -> Event:
    actions = event.actions
    return Event(
        content=_optional(content_from_wit, event.content),
        actions=EventActions(
            state_delta={key: json.loads(value) for key, value in actions.state_delta},
            artifact_delta=dict(actions.artifact_delta),
            deleted_artifact_ids=list(actions.deleted_artifact_ids),
            skip_summarization=actions.skip_summarization,
            transfer_to_agent=actions.transfer_to_agent,
            escalate=actions.escalate,
            end_of_agent=actions.end_of_agent,
            end_invocation=actions.end_invocation,
            extra=parse_object(actions.extra),
        ),
        partial=event.partial,
        turn_complete=event.turn_complete,
        interrupted=event.interrupted,
        author=event.author,
        id=event.id,
        invocation_id=event.invocation_id,
        branch=event.branch,
        long_running_tool_ids=list(event.long_running_tool_ids),
        error_code=event.error_code,
        error_message=event.error_message,
        timestamp_micros=event.timestamp,
        extra=parse_object(event.extra),
    )


def event_to_wit(event: Event) -> wit.Event:
    actions = event.actions
    return wit.Event(
        event.id,
        event.invocation_id,
        event.author,
        _optional(content_to_wit, event.content),
        wit.EventActions(
            [(key, to_json(value)) for key, value in actions.state_delta.items()],
            list(actions.artifact_delta.items()),
            actions.deleted_artifact_ids,
            actions.skip_summarization,
            actions.transfer_to_agent,
            actions.escalate,
            actions.end_of_agent,
            actions.end_invocation,
            to_optional_json(actions.extra),
        ),
        event.partial,
        event.turn_complete,
        event.interrupted,
        event.branch,
        event.long_running_tool_ids,
        event.error_code,
        event.error_message,
        event.timestamp_micros,
        to_optional_json(event.extra),
    )


def declaration_to_wit(tool: FunctionDeclaration) -> wit.FunctionDeclaration:
    return wit.FunctionDeclaration(tool.name, tool.description, to_optional_json(tool.parameters), to_optional_json(tool.response))


def _declaration_from_wit(tool: wit.FunctionDeclaration) -> FunctionDeclaration:
    return FunctionDeclaration(
        tool.name, tool.description, _optional(json.loads, tool.parameters), _optional(json.loads, tool.response)
    )


def request_from_wit(request: wit.LlmRequest) -> LlmRequest:
    return LlmRequest(
        [content_from_wit(content) for content in request.contents],
        list(request.system_instructions),
        request.model,
        [_declaration_from_wit(tool) for tool in request.tools],
        [json.loads(tool) for tool in request.model_tools],
        parse_object(request.config),
    )


def request_to_wit(request: LlmRequest) -> wit.LlmRequest:
    return wit.LlmRequest(
        request.model,
        [content_to_wit(content) for content in request.contents],
        request.system_instructions,
        [declaration_to_wit(tool) for tool in request.tools],
        [to_json(tool) for tool in request.model_tools],
        to_optional_json(request.config),
    )


def response_from_wit(response: wit.LlmResponse) -> LlmResponse:
    return LlmResponse(
        _optional(content_from_wit, response.content),
        response.partial,
        response.turn_complete,
        response.interrupted,
        response.finish_reason,
        response.error_code,
        response.error_message,
        parse_object(response.extra),
    )


def response_to_wit(response: LlmResponse) -> wit.LlmResponse:
    return wit.LlmResponse(
        _optional(content_to_wit, response.content),
        response.partial,
        response.turn_complete,
        response.interrupted,
        response.finish_reason,
        response.error_code,
        response.error_message,
        to_optional_json(response.extra),
    )


def call_from_wit(call: wit.ToolCall) -> ToolCall:
    return ToolCall(call.tool, json.loads(call.args))


def confirmation_from_wit(confirmation: wit.ToolConfirmation) -> ToolConfirmation:
    return ToolConfirmation(confirmation.hint, confirmation.confirmed, _optional(json.loads, confirmation.payload))


def example_to_wit(example: Example) -> wit.Example:
    return wit.Example(content_to_wit(example.input), [content_to_wit(content) for content in example.output])


def state_from_wit(state: list[tuple[str, str]]) -> dict[str, Json]:
    return {key: json.loads(value) for key, value in state}


def state_to_wit(state: dict[str, Json]) -> list[tuple[str, str]]:
    return [(key, to_json(value)) for key, value in state.items()]


def run_request_to_wit(request: RunRequest) -> wit.RunRequest:
    message = content_to_wit(request.message)
    return wit.RunRequest(request.app, request.session, message, state_to_wit(request.state_delta), request.streaming)


def session_from_wit(info: wit.SessionInfo) -> SessionInfo:
    return SessionInfo(info.app, info.id, state_from_wit(info.state), info.event_count, info.created, info.updated)


def window_to_wit(window: EventWindow) -> wit.EventWindow:
    return wit.EventWindow(window.recent, window.after_micros)


def plugin_from_wit(plugin: wit.PluginInfo) -> PluginInfo:
    return PluginInfo(plugin.name, [hook.replace("-", "_") for hook in plugin.hooks], plugin.component)
