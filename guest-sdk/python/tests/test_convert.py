"""Events survive the way through the types of the contract."""

import base64
import dataclasses
import enum
import json
import keyword
import re
import sys
import types
import unittest
from pathlib import Path
from typing import Any

from hatchery_guest import (
    Blob, CodeExecutionResult, Content, Event, EventActions, ExecutableCode, FileData, FunctionCall, FunctionResponse, LiveMessage,
    LiveSignal, Part, ToolCalls, ToolCallsCancelled, ToolResponses, Transcription, Usage,
)  # fmt: skip

REPOSITORY = Path(__file__).parents[3]
EVENTS = json.loads((REPOSITORY / "tests/fixtures/events.json").read_text())

DATA_TYPES = {
    "inlineData": Blob, "fileData": FileData, "functionCall": FunctionCall, "functionResponse": FunctionResponse,
    "executableCode": ExecutableCode, "codeExecutionResult": CodeExecutionResult,
}  # fmt: skip

MICROS = 1_000_000


def contract_types(file: str = "types.wit") -> types.ModuleType:
    """Returns the classes that componentize-py generates for records, variants and enums of a file of the contract."""
    module = types.ModuleType("wit_world.imports.types")
    source = re.sub(r"///?.*", "", (REPOSITORY / "wit" / file).read_text())

    def define(name: str, fields: list[str]) -> None:
        setattr(module, name, dataclasses.make_dataclass(name, fields))

    def camel_case(name: str) -> str:
        words = "".join(word.capitalize() for word in name.split("-"))
        return f"{words}_" if keyword.iskeyword(words) else words

    for kind, name, body in re.findall(r"(record|variant|enum) ([\w-]+) \{([^}]*)\}", source):
        if kind == "record":
            define(camel_case(name), [field.replace("-", "_") for field in re.findall(r"([\w-]+):", body)])
        elif kind == "enum":
            cases = [case.replace("-", "_").upper() for case in re.findall(r"([\w-]+),", body)]
            setattr(module, camel_case(name), enum.Enum(camel_case(name), cases))
        else:
            for case, payload in re.findall(r"([\w-]+)(\(.*\))?,", body):
                define(f"{camel_case(name)}_{camel_case(case)}", ["value"] if payload else [])
    return module


def import_convert() -> types.ModuleType:
    """Imports the conversion as in a component."""
    imports = types.ModuleType("wit_world.imports")
    imports.types = contract_types()
    sys.modules |= {"wit_world": types.ModuleType("wit_world"), "wit_world.imports": imports}
    from hatchery_guest.component import convert

    return convert


CONVERT = import_convert()


def snake_case(key: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter.group().lower(), key)


def create(cls: type, values: dict[str, Any], **fields: Any) -> Any:
    """Creates an object from the keys of a JSON object. Keys without a field go to ``extra``."""
    names = {field.name for field in dataclasses.fields(cls)}
    for key, value in values.items():
        if snake_case(key) in names:
            fields.setdefault(snake_case(key), value)
        else:
            fields.setdefault("extra", {})[key] = value
    return cls(**fields)


def part_from_json(json_part: dict[str, Any]) -> Part:
    rest = dict(json_part)
    data = rest.pop("text", None)
    for key, cls in DATA_TYPES.items():
        if key in rest:
            value = rest.pop(key)
            if cls is Blob:
                value = {"mimeType": "", **value, "data": base64.b64decode(value["data"])}
            data = create(cls, value)
    if "thoughtSignature" in rest:
        rest["thoughtSignature"] = base64.b64decode(rest["thoughtSignature"])
    return create(Part, rest, data=data)


def event_from_json(json_event: dict[str, Any]) -> Event:
    """Converts ADK's JSON to the event that authors see."""
    rest = dict(json_event)
    fields: dict[str, Any] = {"timestamp_micros": round(rest.pop("timestamp") * MICROS)}
    fields["actions"] = create(EventActions, rest.pop("actions"))
    if "content" in rest:
        content = rest.pop("content")
        fields["content"] = Content(content.get("role"), [part_from_json(part) for part in content["parts"]])
    return create(Event, rest, **fields)


class LiveConversations(unittest.TestCase):
    def test_requests_survive_conversion(self) -> None:
        from hatchery_guest.component import live

        response = FunctionResponse("f", {"ok": True}, "c1")
        for request in [
            LiveMessage(Content.user("hi"), True), Blob("audio/pcm", b"1"), ToolResponses([response]), LiveSignal.ACTIVITY_START,
            LiveSignal.ACTIVITY_END, LiveSignal.AUDIO_STREAM_END,
        ]:  # fmt: skip
            self.assertEqual(live.request_from_wit(live.request_to_wit(request)), request)
        with self.assertRaisesRegex(TypeError, "a live run takes a string, a Content"):
            live.request_to_wit(LiveSignal.TURN_COMPLETE)

    def test_what_a_live_model_says_is_converted(self) -> None:
        from hatchery_guest.component import live

        cases = [
            (Content.model("hi"), "Content"), (Transcription("hi"), "OutputTranscription"),
            (Transcription("hi", True, of_input=True), "InputTranscription"), (ToolCalls([FunctionCall("f", {}, "c1")]), "ToolCalls"),
            (ToolCallsCancelled(["c1"]), "ToolCallsCancelled"), (LiveSignal.INTERRUPTED, "Interrupted"),
            (LiveSignal.TURN_COMPLETE, "TurnComplete"), (Usage({"totalTokenCount": 1}), "Usage"),
        ]  # fmt: skip
        for response, case in cases:
            self.assertEqual(type(live.response_to_wit(response)).__name__, f"LiveResponse_{case}")
        self.assertEqual(live.response_to_wit(Usage({"totalTokenCount": 1})).value, '{"totalTokenCount":1}')
        with self.assertRaisesRegex(TypeError, "a live model does not say"):
            live.response_to_wit(LiveSignal.ACTIVITY_START)


class SharedEvents(unittest.TestCase):
    def test_the_shared_events_survive_conversion(self) -> None:
        for name, json_event in EVENTS.items():
            with self.subTest(name):
                event = event_from_json(json_event)
                self.assertEqual(CONVERT.event_from_wit(CONVERT.event_to_wit(event)), event)

    def test_values_are_serialized_with_all_their_digits_and_letters(self) -> None:
        for key in ("numbers", "texts of many scripts"):
            values = EVENTS[key]["customMetadata"]
            self.assertEqual(json.loads(CONVERT.to_json(values)), values)

    def test_a_number_that_json_does_not_have_is_an_error(self) -> None:
        with self.assertRaises(ValueError):
            CONVERT.to_json([float("nan")])


if __name__ == "__main__":
    unittest.main()
