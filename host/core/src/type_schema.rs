//! The JSON Schema of a type, derived from its [`Deserialize`] implementation, so that a schema for editors never
//! differs from the parser.
//!
//! The type is deserialized repeatedly, each time with one new key. Its calls to the deserializer show the keys that it
//! knows and the types of their values. A value that a type parses itself, such as `64 MiB`, has no type here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

use crate::one_or_many;

/// Maximum number of attempts for one type: the number of its keys at all levels, with room to spare.
const MAX_ATTEMPTS: usize = 10_000;

/// Returns the JSON Schema of a type that is read from a mapping. Keys in camel case that a type knows in snake case
/// too are omitted.
pub fn json_schema<T: for<'de> Deserialize<'de>>(title: &str) -> Value {
    let root = Node::default();
    for _ in 0..MAX_ATTEMPTS {
        // Values are made up, so most attempts fail; the requested keys and types are recorded.
        let _ = T::deserialize(Recorder(root.clone()));
        if root.is_complete() {
            break;
        }
    }
    let mut schema = root.to_schema();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        schema.insert("title".into(), title.into());
    }
    schema
}

/// The known shape of a value. Clones share it.
#[derive(Clone, Default)]
struct Node(Rc<RefCell<Shape>>);

#[derive(Clone, Default)]
enum Shape {
    /// Not asked for yet.
    #[default]
    Unknown,
    /// Any value.
    Any,
    /// A value of this JSON type.
    Type(&'static str),
    /// One of these names, or a mapping from one of them.
    Variants(&'static [&'static str]),
    List(Node),
    /// A list, or one of its elements.
    OneOrMany(Node),
    /// A mapping from any key.
    Mapping(Node),
    /// A mapping with these keys.
    Struct(BTreeMap<&'static str, Node>),
}

impl Node {
    fn shape(&self) -> Shape {
        self.0.borrow().clone()
    }

    /// Sets the shape if it is unknown, and returns the one that is set.
    fn record(&self, shape: impl FnOnce() -> Shape) -> Shape {
        let mut current = self.0.borrow_mut();
        if matches!(*current, Shape::Unknown) {
            *current = shape();
        }
        current.clone()
    }

    fn is_complete(&self) -> bool {
        match self.shape() {
            Shape::Unknown => false,
            Shape::Any | Shape::Type(_) | Shape::Variants(_) => true,
            Shape::List(inner) | Shape::OneOrMany(inner) | Shape::Mapping(inner) => inner.is_complete(),
            Shape::Struct(fields) => fields.values().all(Self::is_complete),
        }
    }

    /// Returns the numbers of known and of unknown values at all levels. Changes with each step.
    fn progress(&self) -> (usize, usize) {
        let add = |sum: (usize, usize), inner: (usize, usize)| (sum.0 + inner.0, sum.1 + inner.1);
        match self.shape() {
            Shape::Unknown => (0, 1),
            Shape::Any | Shape::Type(_) | Shape::Variants(_) => (1, 0),
            Shape::List(inner) | Shape::OneOrMany(inner) | Shape::Mapping(inner) => add((1, 0), inner.progress()),
            Shape::Struct(fields) => fields.values().map(Self::progress).fold((1, 0), add),
        }
    }

    fn to_schema(&self) -> Value {
        match self.shape() {
            Shape::Unknown | Shape::Any => json!({}),
            Shape::Type(name) => json!({"type": name}),
            Shape::Variants(names) => json!({"anyOf": [{"enum": names}, {"type": "object"}]}),
            Shape::List(inner) => json!({"type": "array", "items": inner.to_schema()}),
            Shape::OneOrMany(inner) => {
                let element = inner.to_schema();
                json!({"anyOf": [element, {"type": "array", "items": element}]})
            }
            Shape::Mapping(inner) => json!({"type": "object", "additionalProperties": inner.to_schema()}),
            Shape::Struct(fields) => {
                let is_second_spelling = |name: &str| fields.contains_key(snake_case(name).as_str());
                let own = |name: &str| snake_case(name) == name || !is_second_spelling(name);
                let properties = fields.iter().filter(|(name, _)| own(name));
                let properties: serde_json::Map<_, _> =
                    properties.map(|(name, node)| ((*name).to_owned(), node.to_schema())).collect();
                json!({"type": "object", "properties": properties, "additionalProperties": false})
            }
        }
    }
}

/// Returns a name such as `subAgents` as `sub_agents`.
pub fn snake_case(name: &str) -> String {
    name.chars().fold(String::new(), |snake, c| {
        if c.is_ascii_uppercase() { snake + "_" + &c.to_ascii_lowercase().to_string() } else { snake + &c.to_string() }
    })
}

/// A deserializer of made-up values that records the requested types.
struct Recorder(Node);

/// The error that ends an attempt.
#[derive(Debug)]
struct Stop(String);

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stop {}

impl de::Error for Stop {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

macro_rules! record_types {
    ($($method:ident $visit:ident($value:expr) $name:literal;)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
                self.0.record(|| Shape::Type($name));
                visitor.$visit($value)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Recorder {
    type Error = Stop;

    record_types! {
        deserialize_bool visit_bool(false) "boolean";
        deserialize_i8 visit_i8(1) "integer";
        deserialize_i16 visit_i16(1) "integer";
        deserialize_i32 visit_i32(1) "integer";
        deserialize_i64 visit_i64(1) "integer";
        deserialize_u8 visit_u8(1) "integer";
        deserialize_u16 visit_u16(1) "integer";
        deserialize_u32 visit_u32(1) "integer";
        deserialize_u64 visit_u64(1) "integer";
        deserialize_f32 visit_f32(1.0) "number";
        deserialize_f64 visit_f64(1.0) "number";
        deserialize_char visit_char('x') "string";
        deserialize_str visit_str("x") "string";
        deserialize_string visit_str("x") "string";
        deserialize_identifier visit_str("x") "string";
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.0.record(|| Shape::Type("null"));
        visitor.visit_unit()
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.0.record(|| Shape::Any);
        visitor.visit_str("x")
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_any(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_any(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_some(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Stop> {
        if name != one_or_many::NAME {
            return visitor.visit_newtype_struct(self);
        }
        match self.0.record(|| Shape::OneOrMany(Node::default())) {
            Shape::OneOrMany(inner) => visitor.visit_seq(OneElement(Some(inner))),
            _ => Err(de::Error::custom("read in two ways")),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.0.record(|| Shape::List(Node::default())) {
            Shape::List(inner) => visitor.visit_seq(OneElement(Some(inner))),
            _ => Err(de::Error::custom("read in two ways")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Stop> {
        self.0.record(|| Shape::Type("array"));
        visitor.visit_unit()
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.0.record(|| Shape::Mapping(Node::default())) {
            Shape::Mapping(inner) => visitor.visit_map(OneEntry(Some(("x", inner)), None)),
            _ => Err(de::Error::custom("read in two ways")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let new = || Shape::Struct(fields.iter().map(|field| (*field, Node::default())).collect());
        let Shape::Struct(fields) = self.0.record(new) else { return Err(de::Error::custom("read in two ways")) };
        let next = fields.into_iter().find(|(_, node)| !node.is_complete());
        visitor.visit_map(OneEntry(next, None))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Stop> {
        self.0.record(|| Shape::Variants(variants));
        Err(de::Error::custom("the variant is not made up"))
    }
}

/// A list of one made-up element.
struct OneElement(Option<Node>);

impl<'de> SeqAccess<'de> for OneElement {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Stop> {
        self.0.take().map(|node| read(&node, seed)).transpose()
    }
}

/// A mapping of at most one entry: the one to read next, and the node of the key that was read.
struct OneEntry(Option<(&'static str, Node)>, Option<Node>);

impl<'de> MapAccess<'de> for OneEntry {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Stop> {
        let Some((key, node)) = self.0.take() else { return Ok(None) };
        self.1 = Some(node.clone());
        // A key that the type refuses, because it reads its mapping itself, has no value.
        let key: Result<_, Stop> = seed.deserialize(key.into_deserializer());
        key.map(Some).inspect_err(|_| drop(node.record(|| Shape::Any)))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        match self.1.take() {
            Some(node) => read(&node, seed),
            None => Err(de::Error::custom("a value without a key")),
        }
    }
}

/// Deserializes from a placeholder value. If that reveals nothing about the type, any value is accepted.
fn read<'de, T: DeserializeSeed<'de>>(node: &Node, seed: T) -> Result<T::Value, Stop> {
    let before = node.progress();
    let result = seed.deserialize(Recorder(node.clone()));
    if !node.is_complete() && node.progress() == before {
        *node.0.borrow_mut() = Shape::Any;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Garden {
        name: String,
        #[serde(default, alias = "flowerBeds")]
        flower_beds: Vec<Bed>,
        tags: Option<BTreeMap<String, bool>>,
        season: Option<Season>,
        size: Option<Size>,
        note: Option<Value>,
        stubborn: Option<Stubborn>,
        wall: Option<bool>,
    }

    /// A list that is refused before any element is read.
    struct Stubborn;

    impl<'de> Deserialize<'de> for Stubborn {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Refusal;
            impl Visitor<'_> for Refusal {
                type Value = Stubborn;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("nothing")
                }
            }
            deserializer.deserialize_seq(Refusal)
        }
    }

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Bed {
        length: f64,
        plants: std::num::NonZeroU32,
        stubborn: Option<Stubborn>,
    }

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Season {
        Spring,
        LateSummer,
    }

    /// A text that is parsed.
    #[derive(serde::Deserialize)]
    #[serde(try_from = "String")]
    struct Size;

    impl TryFrom<String> for Size {
        type Error = String;

        fn try_from(text: String) -> Result<Self, String> {
            if text == "big" { Ok(Self) } else { Err(format!("`{text}` is not a size")) }
        }
    }

    #[test]
    fn a_schema_has_the_keys_and_types_that_a_type_reads() {
        let bed = json!({
            "type": "object", "additionalProperties": false,
            "properties": {"length": {"type": "number"}, "plants": {"type": "integer"}, "stubborn": {}},
        });
        assert_eq!(
            json_schema::<Garden>("a garden"),
            json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "a garden",
                "type": "object", "additionalProperties": false,
                "properties": {
                    "name": {"type": "string"},
                    "flower_beds": {"type": "array", "items": bed},
                    "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
                    "season": {"anyOf": [{"enum": ["spring", "late_summer"]}, {"type": "object"}]},
                    "size": {"type": "string"},
                    "note": {},
                    "stubborn": {},
                    "wall": {"type": "boolean"},
                },
            })
        );
        // The variants exist.
        let _ = (Season::Spring, Season::LateSummer);
    }
}
