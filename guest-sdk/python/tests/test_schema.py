"""Type hints in a module that postpones the evaluation of annotations."""

from __future__ import annotations

import unittest
from typing import Annotated, NotRequired, Required, TypedDict

from hatchery_guest.schema import BadValue, parse, schema_of


class Place(TypedDict):
    name: str
    tags: NotRequired[list[str]]
    note: Annotated[NotRequired[str], "A remark."]


class Options(TypedDict, total=False):
    name: Required[str]
    size: int


class Schemas(unittest.TestCase):
    def test_keys_of_a_typed_dict_are_as_required_as_they_say(self) -> None:
        for hint in (Place, Options):
            with self.subTest(hint=hint):
                self.assertEqual(schema_of(hint)["required"], ["name"])
                self.assertEqual(parse(hint, {"name": "here"}, "x"), {"name": "here"})
                with self.assertRaisesRegex(BadValue, "x has no `name`"):
                    parse(hint, {}, "x")
