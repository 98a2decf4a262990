"""Type hints in a module that postpones the evaluation of annotations."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import math
import typing
import unittest
import unittest.mock
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

from hatchery_guest import Context, ToolContext, plugin, tool
from hatchery_guest.schema import BadHint, BadValue, dump, parse, schema_of
from hatchery_guest.testing import MockHost, run


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


UserName = typing.NewType("UserName", str)
ALIASES: list[Any] = [UserName]
if hasattr(typing, "TypeAliasType"):
    ALIASES.append(typing.TypeAliasType("Name", UserName))


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

    def test_a_type_alias_means_the_type_that_it_stands_for(self) -> None:
        for alias in ALIASES:
            with self.subTest(alias=alias):
                self.assertEqual(schema_of(list[alias]), {"type": "array", "items": {"type": "string"}})
                self.assertEqual(parse(alias | None, "a", "x"), "a")
                with self.assertRaisesRegex(BadValue, "x must be a string"):
                    parse(alias, 1, "x")

    @unittest.skipUnless(hasattr(typing, "TypeAliasType"), "needs Python 3.12")
    def test_a_type_alias_that_contains_itself_has_no_schema(self) -> None:
        names: dict[str, Any] = {}
        exec("type Tree = list[Tree]", names)
        with self.assertRaisesRegex(BadHint, "Tree contains itself, so its JSON Schema has no end"):
            schema_of(names["Tree"])

    def test_a_function_that_cannot_be_a_tool_is_named_with_the_reason(self) -> None:
        def wait(until: Any = datetime.date(2026, 1, 1)) -> None: ...
        def open_file(file: File) -> None: ...

        @functools.partial
        def shifted(number: int) -> int:
            return number

        class Dice:
            def roll(self, sides: int) -> int:
                return sides

        for function, message in [
            (wait, "the default of parameter `until`: a value of type date cannot be converted to JSON"),
            (open_file, "the type hints of `open_file`: name 'File' is not defined; types that are imported below `if TYPE_CHECKING` do not"),
            ("dice", r"'dice' is not a function; options have names, as in `@tool\(name=\"…\"\)`"),
            (shifted, r"functools.partial\(.* is not a function; options have names"),
            (Dice.roll, "`.*Dice.roll` is a method, which no caller has an object for; move it out of its class"),
        ]:
            with self.subTest(function=function), self.assertRaisesRegex(TypeError, message):
                tool(function)  # type: ignore[arg-type, type-var]
        with self.assertRaisesRegex(TypeError, "is not a class; a plugin is a class whose methods are hooks"):
            plugin(wait)  # type: ignore[arg-type]

    def test_the_notes_of_an_annotated_type_are_any_objects(self) -> None:
        hint = Annotated[int, {"least": 1}, "A number."]
        self.assertEqual(schema_of(hint), {"type": "integer", "description": "A number."})
        self.assertEqual(parse(hint, 6.0, "x"), 6)

    def test_a_context_can_be_optional(self) -> None:
        def greet(name: str, cx: ToolContext | None = None) -> str:
            return f"Hello {name}" if cx is None else f"Hello {name}, {cx.info.user}"

        greeting = tool(greet)
        self.assertEqual(list(greeting.declaration.parameters["properties"]), ["name"])
        self.assertEqual(run(greeting.call({"name": "Ada"}, MockHost().tool_context())), "Hello Ada, user")

    def test_a_number_that_json_does_not_have_is_an_error(self) -> None:
        for number in (math.nan, math.inf, -math.inf):
            with self.subTest(number=number), self.assertRaisesRegex(BadValue, f"the number {number} cannot be converted to JSON"):
                dump({"ratios": [1.5, number]})
        with self.assertRaisesRegex(BadValue, "the number nan"):
            MockHost().context().state["ratio"] = math.nan

    def test_the_hints_of_a_class_are_evaluated_once(self) -> None:
        @dataclasses.dataclass
        class Point:
            x: int
            y: int

        schema_of(list[Point])
        with unittest.mock.patch("typing.get_type_hints", side_effect=AssertionError("evaluated again")):
            self.assertEqual(parse(list[Point], [{"x": 1, "y": 2}] * 3, "x"), [Point(1, 2)] * 3)

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
