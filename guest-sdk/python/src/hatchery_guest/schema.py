"""JSON Schemas of type hints, and conversion between JSON and Python values.

Supported are ``bool``, ``int``, ``float``, ``str``, ``list``, ``tuple``, ``set``, ``dict``, ``Any``, ``None``, unions and ``Optional``,
``Literal``, enums, dataclasses, ``TypedDict``, ``Annotated[hint, "description"]``, and ``type`` aliases and ``NewType``s of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import json
import math
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

Json = Any
_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}
_NOT_REQUIRED = getattr(typing, "NotRequired", None)
_REQUIRED = getattr(typing, "Required", None)
_ALIAS = getattr(typing, "TypeAliasType", ())


_enclosing: list[Any] = []
"""The dataclasses, ``TypedDict``s and ``type`` aliases whose schemas are under construction, outermost first."""


class BadValue(ValueError):
    """A value that does not match its type hint. The message is for the sender."""


class BadHint(TypeError):
    """A type hint that has no JSON Schema."""


def schema_of(hint: Any) -> dict[str, Json]:
    """Returns the JSON Schema of a type hint.

    Raises ``BadHint`` if it has none.
    """
    if isinstance(hint, _ALIAS):
        with _enclosed(hint):
            return schema_of(hint.__value__)
    hint = resolve(hint)
    if hint is Any or hint is object:
        return {}
    if hint is None or hint is type(None):
        return {"type": "null"}
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _described(schema_of(args[0]), args[1:])
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin in (_NOT_REQUIRED, _REQUIRED) and origin is not None:
        return schema_of(args[0])
    if origin is Literal:
        return _choices([_plain(item) for item in args])
    if origin in (Union, types.UnionType):
        return _union([schema_of(arg) for arg in args])
    if (origin or hint) in (list, set, frozenset, tuple):
        return _list(origin or hint, args)
    if (origin or hint) is dict:
        return {"type": "object", "additionalProperties": schema_of(args[1])} if args else {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _choices([member.value for member in hint])
    fields = _fields(hint)
    if fields is None:
        raise BadHint(f"{_name(hint)} has no JSON Schema; use str, int, float, bool, list, dict, Literal, an Enum or a dataclass")
    with _enclosed(hint):
        return object_schema({name: (schema_of(field.hint), field.required) for name, field in fields.items()})


@contextlib.contextmanager
def _enclosed(hint: Any) -> Iterator[None]:
    """While it is entered, a schema is under construction.

    Raises ``BadHint`` if it is entered already.
    """
    if hint in _enclosing:
        raise BadHint(f"{_name(hint)} contains itself, so its JSON Schema has no end; use dict or list for the inner values")
    _enclosing.append(hint)
    try:
        yield
    finally:
        _enclosing.pop()


def object_schema(properties: dict[str, tuple[dict[str, Json], bool]]) -> dict[str, Json]:
    """Returns the schema of an object with these properties, each with whether it is required."""
    schema: dict[str, Json] = {"type": "object", "properties": {name: property for name, (property, _) in properties.items()}}
    required = [name for name, (_, is_required) in properties.items() if is_required]
    if required:
        schema["required"] = required
    return schema


def _described(schema: dict[str, Json], notes: tuple[Any, ...]) -> dict[str, Json]:
    text = next((note for note in notes if isinstance(note, str)), None)
    return {**schema, "description": text} if text else schema


def _choices(values: list[Json]) -> dict[str, Json]:
    kinds = {_PLAIN.get(type(value)) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    return {"type": kind, "enum": values} if kind else {"enum": values}


def _union(schemas: list[dict[str, Json]]) -> dict[str, Json]:
    null = {"type": "null"}
    others = [schema for schema in schemas if schema != null]
    return others[0] if len(schemas) == 1 else {"anyOf": others + ([null] if len(others) < len(schemas) else [])}


def resolve(hint: Any) -> Any:
    """Returns the type that a ``type`` alias or a ``NewType`` stands for, and any other hint unchanged."""
    while True:
        if isinstance(hint, _ALIAS):
            hint = hint.__value__
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return hint


def without_null(hint: Any) -> Any:
    """Returns ``T`` for ``T | None``, and any other hint unchanged."""
    hint = resolve(hint)
    args = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType) and type(None) in args:
        return Union[tuple(arg for arg in args if arg is not type(None))]
    return hint


def _list(kind: Any, args: tuple[Any, ...]) -> dict[str, Json]:
    schema: dict[str, Json] = {"type": "array"}
    if kind is tuple and args and args[-1] is not Ellipsis:
        return {**schema, "prefixItems": [schema_of(arg) for arg in args], "minItems": len(args), "maxItems": len(args)}
    if args:
        schema["items"] = schema_of(args[0])
    if kind in (set, frozenset):
        schema["uniqueItems"] = True
    return schema


@dataclasses.dataclass
class _Field:
    hint: Any
    required: bool


def _fields(hint: Any) -> dict[str, _Field] | None:
    """Returns the fields of a dataclass or a TypedDict, ``None`` for other types."""
    return _fields_of_class(hint) if isinstance(hint, type) else None


@functools.cache
def _fields_of_class(hint: type) -> dict[str, _Field] | None:
    """The result is kept: evaluating the hints takes much longer than converting a value."""
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        missing = dataclasses.MISSING
        return {
            field.name: _Field(hints[field.name], field.default is missing and field.default_factory is missing)
            for field in dataclasses.fields(hint)
            if field.init
        }
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        return {name: _Field(field, _is_required(hint, name, field)) for name, field in hints.items()}
    return None


def _is_required(typed_dict: Any, name: str, hint: Any) -> bool:
    """Returns true if a key is required. ``__required_keys__`` does not know the ``NotRequired`` of a module that postpones the evaluation of
    annotations."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is None or get_origin(hint) not in (_NOT_REQUIRED, _REQUIRED):
        return name in typed_dict.__required_keys__
    return get_origin(hint) is _REQUIRED


def parse(hint: Any, value: Json, what: str) -> Any:
    """Converts a JSON value to the type of its hint. ``what`` names the value in the error.

    Raises ``BadValue`` if it does not match.
    """
    if type(hint) is type and hint in _PLAIN:
        return _parse_plain(hint, value, what)
    hint = resolve(hint)
    if hint is Any or hint is object:
        return value
    if hint is None or hint is type(None):
        return _expect(value, value is None, what, "null")
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return parse(args[0], value, what)
    if hint in _PLAIN:  # By an alias.
        return _parse_plain(hint, value, what)
    if origin in (_NOT_REQUIRED, _REQUIRED) and origin is not None:
        return parse(args[0], value, what)
    if origin is Literal:
        choices = [item for item in args if _is_same(_plain(item), value)]
        return _expect(choices[:1], choices, what, "one of " + ", ".join(repr(_plain(item)) for item in args))[0]
    if origin in (Union, types.UnionType):
        return _parse_union(args, value, what)
    if (origin or hint) in (list, set, frozenset, tuple):
        return _parse_list(origin or hint, args, value, what)
    if (origin or hint) is dict:
        _expect(value, isinstance(value, dict), what, "an object")
        return {_parse_key(args[0], key, what): parse(args[1], item, f"{what}.{key}") for key, item in value.items()} if args else value
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        member = next((item for item in hint if _is_same(item.value, value)), None)
        return _expect(member, member is not None, what, "one of " + ", ".join(repr(item.value) for item in hint))
    return _parse_fields(hint, value, what)


def _plain(item: Any) -> Json:
    """Returns the value of an enum member, and any other value unchanged."""
    return item.value if isinstance(item, enum.Enum) else item


def _is_same(choice: Any, value: Json) -> bool:
    """Returns true if two values are the same in JSON: ``True`` is not 1."""
    return isinstance(choice, bool) == isinstance(value, bool) and choice == value


def _expect(value: Any, matches: Any, what: str, expected: str) -> Any:
    if not matches:
        raise BadValue(f"{what} must be {expected}")
    return value


def _parse_plain(hint: type, value: Json, what: str) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is float:
        return float(_expect(value, is_number, what, "a number"))
    if hint is int:
        # Models also write integers as 6.0.
        return int(_expect(value, is_number and value == value // 1, what, "an integer"))
    if hint is bool:
        return _expect(value, isinstance(value, bool), what, "a boolean")
    return _expect(value, isinstance(value, str), what, "a string")


def _parse_union(hints: tuple[Any, ...], value: Json, what: str) -> Any:
    reasons = []
    for hint in hints:
        try:
            return parse(hint, value, what)
        except BadValue as error:
            if hint is not type(None):
                reasons.append(str(error))
    raise BadValue("; or ".join(reasons))


def _parse_list(kind: Any, args: tuple[Any, ...], value: Json, what: str) -> Any:
    _expect(value, isinstance(value, list), what, "an array")
    if kind is tuple and args and args[-1] is not Ellipsis:
        _expect(value, len(value) == len(args), what, f"an array of {len(args)} items")
        return tuple(parse(hint, item, f"{what}[{index}]") for index, (hint, item) in enumerate(zip(args, value)))
    items = [parse(args[0], item, f"{what}[{index}]") for index, item in enumerate(value)] if args else value
    return kind(items)


def _parse_key(hint: Any, key: str, what: str) -> Any:
    """Converts a key of an object. The keys of JSON are strings, also for keys that are numbers."""
    try:
        return parse(hint, key, f"a key of {what}")
    except BadValue:
        try:
            number = json.loads(key)
        except ValueError:
            number = None
        if type(number) not in (bool, int, float):
            raise
        return parse(hint, number, f"a key of {what}")


def _parse_fields(hint: Any, value: Json, what: str) -> Any:
    fields = _fields(hint)
    if fields is None:
        raise BadHint(f"{_name(hint)} cannot be created from JSON")
    _expect(value, isinstance(value, dict), what, "an object")
    values = {name: parse(field.hint, value[name], f"{what}.{name}") for name, field in fields.items() if name in value}
    missing = [name for name, field in fields.items() if field.required and name not in value]
    if missing:
        raise BadValue(f"{what} has no {', '.join(f'`{name}`' for name in missing)}")
    return hint(**values)


def dump(value: Any) -> Json:
    """Converts a Python value to JSON: dataclasses to objects, enums to their values, sets and tuples to arrays.

    Raises ``BadValue`` if JSON has no form for it.
    """
    if isinstance(value, enum.Enum):
        return dump(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(f"the number {value} cannot be converted to JSON; use None or a string")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: dump(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {_dump_key(dump(key)): dump(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [dump(item) for item in value]
    if inspect.iscoroutine(value):
        value.close()
        raise BadValue(f"the coroutine of `{value.__name__}` cannot be converted to JSON; write `await` before the call")
    raise BadValue(f"a value of type {_name(type(value))} cannot be converted to JSON; return strings, numbers, lists, dicts or dataclasses")


def _dump_key(key: Json) -> str:
    """Returns the key of an object for a value, as ``_parse_key`` reads it."""
    return json.dumps(key) if key is None or isinstance(key, (bool, int, float)) else str(key)


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
