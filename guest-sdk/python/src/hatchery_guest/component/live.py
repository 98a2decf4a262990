"""Conversion of the requests and messages of live conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from wit_world.imports import types as wit

from ..content import Blob, Content
from ..live import (
    LiveMessage, LiveRequest, LiveResponse, LiveRunRequest, LiveSignal, ToolCalls, ToolCallsCancelled, ToolResponses, Transcription,
    Usage,
)  # fmt: skip
from . import convert


def request_from_wit(request: Any) -> LiveRequest:
    match request:
        case wit.LiveRequest_Content(message):
            return LiveMessage(convert.content_from_wit(message.content), message.partial)
        case wit.LiveRequest_Blob(blob):
            return Blob(blob.mime_type, blob.data, blob.display_name)
        case wit.LiveRequest_ActivityStart():
            return LiveSignal.ACTIVITY_START
        case wit.LiveRequest_ActivityEnd():
            return LiveSignal.ACTIVITY_END
        case wit.LiveRequest_AudioStreamEnd():
            return LiveSignal.AUDIO_STREAM_END
        case wit.LiveRequest_ToolResponses(responses):
            return ToolResponses([convert.function_response_from_wit(response) for response in responses])
    raise TypeError(f"unknown live request {request!r}")


async def requests_from_wit(stream: Any) -> AsyncIterator[LiveRequest]:
    """Reads a stream of requests one by one."""
    with stream:
        while not stream.writer_dropped:
            for request in await stream.read(1):
                yield request_from_wit(request)


def request_to_wit(request: LiveRequest) -> Any:
    match request:
        case LiveMessage(content, partial):
            return wit.LiveRequest_Content(wit.LiveMessage(convert.content_to_wit(content), partial))
        case Blob(mime_type, data, display_name):
            return wit.LiveRequest_Blob(wit.Blob(mime_type, data, display_name))
        case ToolResponses(responses):
            return wit.LiveRequest_ToolResponses([convert.function_response_to_wit(response) for response in responses])
        case LiveSignal.ACTIVITY_START:
            return wit.LiveRequest_ActivityStart()
        case LiveSignal.ACTIVITY_END:
            return wit.LiveRequest_ActivityEnd()
        case LiveSignal.AUDIO_STREAM_END:
            return wit.LiveRequest_AudioStreamEnd()
    raise TypeError(f"a live run takes a string, a Content, a LiveMessage, a Blob or a signal of the user, not {request!r}")


def response_to_wit(response: LiveResponse) -> Any:
    match response:
        case Content():
            return wit.LiveResponse_Content(convert.content_to_wit(response))
        case Transcription(text, finished, of_input):
            chunk = wit.Transcription(text, finished)
            return wit.LiveResponse_InputTranscription(chunk) if of_input else wit.LiveResponse_OutputTranscription(chunk)
        case ToolCalls(calls):
            return wit.LiveResponse_ToolCalls([convert.function_call_to_wit(call) for call in calls])
        case ToolCallsCancelled(ids):
            return wit.LiveResponse_ToolCallsCancelled(ids)
        case LiveSignal.INTERRUPTED:
            return wit.LiveResponse_Interrupted()
        case LiveSignal.TURN_COMPLETE:
            return wit.LiveResponse_TurnComplete()
        case Usage(metadata):
            return wit.LiveResponse_Usage(convert.to_json(metadata))
    raise TypeError(f"a live model does not say {response!r}")


def run_request_to_wit(request: LiveRunRequest) -> Any:
    return wit.LiveRunRequest(request.app, request.session, convert.to_optional_json(request.config))
