"""JSON Schemas from type hints, and values by them: arguments into Python values, results into JSON.

Known are ``bool``, ``int``, ``float``, ``str``, ``list``, ``tuple``, ``set``, ``dict``, ``Any``, ``None``, unions and ``Optional``,
``Literal``, enums, dataclasses, ``TypedDict``, and ``Annotated[hint, "description"]``.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

Json = Any
_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}
_NOT_REQUIRED = getattr(typing, "NotRequired", None)
_REQUIRED = getattr(typing, "Required", None)


class BadValue(ValueError):
    """A value that does not fit its type hint, in words for whoever has sent it."""


class BadHint(TypeError):
    """A type hint that has no JSON Schema."""


def schema_of(hint: Any) -> dict[str, Json]:
    """The JSON Schema of a type hint.

    Raises ``BadHint`` for a hint that JSON has nothing for.
    """
    if hint is Any or hint is object:
        return {}
    if hint is None or hint is type(None):
        return {"type": "null"}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _described(schema_of(args[0]), args[1:])
    if origin in (_NOT_REQUIRED, _REQUIRED) and origin is not None:
        return schema_of(args[0])
    if origin is Literal:
        return _choices(list(args))
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
    return object_schema({name: (schema_of(field.hint), field.required) for name, field in fields.items()})


def object_schema(properties: dict[str, tuple[dict[str, Json], bool]]) -> dict[str, Json]:
    """The schema of an object with these properties, each with whether it is required."""
    schema: dict[str, Json] = {"type": "object", "properties": {name: each for name, (each, _) in properties.items()}}
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


def without_null(hint: Any) -> Any:
    """``T`` of ``T | None``; any other hint as it is."""
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
    """The fields of a dataclass or a TypedDict; nothing for other types."""
    if not isinstance(hint, type):
        return None
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
        return {name: _Field(each, name in hint.__required_keys__) for name, each in hints.items()}
    return None


def read(hint: Any, value: Json, what: str) -> Any:
    """A JSON value as its hint wants it; ``what`` names it in the error.

    Raises ``BadValue`` when it does not fit.
    """
    if hint is Any or hint is object:
        return value
    if hint is None or hint is type(None):
        return _expect(value, value is None, what, "null")
    if hint in _PLAIN:
        return _read_plain(hint, value, what)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated or (origin in (_NOT_REQUIRED, _REQUIRED) and origin is not None):
        return read(args[0], value, what)
    if origin is Literal:
        choice = next((each for each in args if type(each) is type(value) and each == value), None)
        return _expect(choice, choice is not None, what, "one of " + ", ".join(map(repr, args)))
    if origin in (Union, types.UnionType):
        return _read_union(args, value, what)
    if (origin or hint) in (list, set, frozenset, tuple):
        return _read_list(origin or hint, args, value, what)
    if (origin or hint) is dict:
        _expect(value, isinstance(value, dict), what, "an object")
        return {key: read(args[1], each, f"{what}.{key}") for key, each in value.items()} if args else value
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        member = next((each for each in hint if each.value == value), None)
        return _expect(member, member is not None, what, "one of " + ", ".join(repr(each.value) for each in hint))
    return _read_fields(hint, value, what)


def _expect(value: Any, fits: bool, what: str, wanted: str) -> Any:
    if not fits:
        raise BadValue(f"{what} must be {wanted}")
    return value


def _read_plain(hint: type, value: Json, what: str) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is float:
        return float(_expect(value, number, what, "a number"))
    if hint is int:
        # Models write whole numbers as 6.0, too.
        return int(_expect(value, number and value == value // 1, what, "a whole number"))
    if hint is bool:
        return _expect(value, isinstance(value, bool), what, "true or false")
    return _expect(value, isinstance(value, str), what, "a text")


def _read_union(hints: tuple[Any, ...], value: Json, what: str) -> Any:
    reasons = []
    for hint in hints:
        try:
            return read(hint, value, what)
        except BadValue as error:
            if hint is not type(None):
                reasons.append(str(error))
    raise BadValue("; or ".join(reasons))


def _read_list(kind: Any, args: tuple[Any, ...], value: Json, what: str) -> Any:
    _expect(value, isinstance(value, list), what, "a list")
    if kind is tuple and args and args[-1] is not Ellipsis:
        _expect(value, len(value) == len(args), what, f"a list of {len(args)}")
        return tuple(read(hint, each, f"{what}[{at}]") for at, (hint, each) in enumerate(zip(args, value)))
    items = [read(args[0], each, f"{what}[{at}]") for at, each in enumerate(value)] if args else value
    return kind(items)


def _read_fields(hint: Any, value: Json, what: str) -> Any:
    fields = _fields(hint)
    if fields is None:
        raise BadHint(f"{_name(hint)} cannot be made of JSON")
    _expect(value, isinstance(value, dict), what, "an object")
    given = {name: read(field.hint, value[name], f"{what}.{name}") for name, field in fields.items() if name in value}
    missing = [name for name, field in fields.items() if field.required and name not in value]
    if missing:
        raise BadValue(f"{what} lacks {', '.join(missing)}")
    return hint(**given)


def dump(value: Any) -> Json:
    """A Python value as JSON: dataclasses become objects, enums their values, sets and tuples lists.

    Raises ``BadValue`` for what JSON has nothing for.
    """
    if isinstance(value, enum.Enum):
        return dump(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: dump(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(dump(key)): dump(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [dump(each) for each in value]
    raise BadValue(f"a {_name(type(value))} is not JSON; give text, numbers, lists, dicts or dataclasses")


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
