"""Type hints in a module that postpones the evaluation of annotations."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import unittest
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

from hatchery_guest import Context, ToolContext, tool
from hatchery_guest.schema import BadValue, dump, parse, schema_of


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


class Level(enum.Enum):
    LOW = 1


class Place(TypedDict):
    name: str
    tags: NotRequired[list[str]]
    note: Annotated[NotRequired[str], "A remark."]


class Options(TypedDict, total=False):
    name: Required[str]
    size: int


@dataclasses.dataclass
class Folder:
    name: str
    folders: list[Folder]


class Schemas(unittest.TestCase):
    def test_keys_of_a_typed_dict_are_as_required_as_they_say(self) -> None:
        for hint in (Place, Options):
            with self.subTest(hint=hint):
                self.assertEqual(schema_of(hint)["required"], ["name"])
                self.assertEqual(parse(hint, {"name": "here"}, "x"), {"name": "here"})
                with self.assertRaisesRegex(BadValue, "x has no `name`"):
                    parse(hint, {}, "x")

    def test_a_parameter_without_a_schema_is_named(self) -> None:
        def open_folder(folder: Folder) -> None: ...
        def list_files(path: str, changed: datetime.date | None = None) -> None: ...
        def rename(old: str, /, new: str) -> None: ...
        def copy(cx: ToolContext, path: str, other: Context) -> None: ...

        for function, message in [
            (open_folder, "parameter `folder`: Folder contains itself, so its JSON Schema has no end; use dict or list"),
            (list_files, "parameter `changed`: date has no JSON Schema; use str"),
            (rename, "parameter `old` of `rename` has no name for callers; remove the `/` after it"),
            (copy, "parameters `cx` and `other` of `copy` are both the context; remove one"),
        ]:
            with self.subTest(function=function.__name__), self.assertRaisesRegex(TypeError, message):
                tool(function)
        self.assertEqual(schema_of(Place)["type"], "object")

    def test_keys_of_a_dict_are_converted_to_the_type_of_their_hint(self) -> None:
        for hint, value, parsed in [
            (dict[int, str], {"1": "a"}, {1: "a"}),
            (dict[Unit, float], {"m": 2}, {Unit.METRE: 2.0}),
            (dict[Level, str], {"1": "a"}, {Level.LOW: "a"}),
            (dict[str, str], {"1": "a"}, {"1": "a"}),
            (dict[Any, str], {"1": "a"}, {"1": "a"}),
        ]:
            with self.subTest(hint=hint):
                self.assertEqual(parse(hint, value, "x"), parsed)
        with self.assertRaisesRegex(BadValue, "a key of x must be an integer"):
            parse(dict[int, str], {"one": "a"}, "x")

    def test_keys_of_a_dict_are_written_as_they_are_read(self) -> None:
        for hint, value, written in [
            (dict[bool, str], {True: "a", False: "b"}, {"true": "a", "false": "b"}),
            (dict[int, str], {1: "a"}, {"1": "a"}),
            (dict[float, str], {1.5: "a"}, {"1.5": "a"}),
            (dict[Level, str], {Level.LOW: "a"}, {"1": "a"}),
            (dict[str, str], {"é": "a"}, {"é": "a"}),
        ]:
            with self.subTest(hint=hint):
                self.assertEqual(dump(value), written)
                self.assertEqual(parse(hint, written, "x"), value)
        self.assertEqual(dump({None: "a"}), {"null": "a"})

    def test_choices_are_the_values_of_enum_members(self) -> None:
        hint = Literal[Unit.METRE, "any"]
        self.assertEqual(schema_of(hint), {"type": "string", "enum": ["m", "any"]})
        self.assertEqual([parse(hint, value, "x") for value in ("m", "any")], [Unit.METRE, "any"])
        with self.assertRaisesRegex(BadValue, "x must be one of 'm', 'any'"):
            parse(hint, "ft", "x")
        for hint, value in [(Level, True), (Literal[1], True), (Literal[True], 1)]:
            with self.subTest(hint=hint), self.assertRaises(BadValue):
                parse(hint, value, "x")
