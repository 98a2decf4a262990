//! Lists in configuration files that may be written as their only element.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{BoolDeserializer, MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};

/// The name by which a [schema](crate::type_schema) recognises such a list.
pub(crate) const NAME: &str = "$one_or_many";

/// Reads a list, or one element without the list.
pub fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_newtype_struct(NAME, OneOrMany(PhantomData))
}

struct OneOrMany<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, or one element")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            elements.push(element);
        }
        Ok(elements)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
        Ok(vec![T::deserialize(MapAccessDeserializer::new(map))?])
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        let deserializer: StrDeserializer<'_, E> = text.into_deserializer();
        Ok(vec![T::deserialize(deserializer)?])
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Vec<T>, E> {
        let deserializer: BoolDeserializer<E> = value.into_deserializer();
        Ok(vec![T::deserialize(deserializer)?])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Bed {
        length: u32,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Garden {
        #[serde(deserialize_with = "one_or_many")]
        beds: Vec<Bed>,
        #[serde(deserialize_with = "one_or_many")]
        names: Vec<String>,
    }

    fn read(beds: Value, names: Value) -> Result<Garden, String> {
        serde_json::from_value(json!({"beds": beds, "names": names})).map_err(|error| error.to_string())
    }

    #[test]
    fn one_element_is_a_list_of_one() {
        let one = Garden { beds: vec![Bed { length: 1 }], names: vec!["a".into()] };
        assert_eq!(read(json!({"length": 1}), json!("a")).as_ref(), Ok(&one));
        assert_eq!(read(json!([{"length": 1}]), json!(["a"])), Ok(one));
        assert_eq!(read(json!([]), json!([])), Ok(Garden { beds: Vec::new(), names: Vec::new() }));
        let error = read(json!({"width": 1}), json!([])).unwrap_err();
        assert!(error.contains("unknown field `width`"), "{error}");
        let error = read(json!([]), json!(3)).unwrap_err();
        assert_eq!(error, "invalid type: integer `3`, expected a list, or one element");
    }

    #[test]
    fn the_schema_of_such_a_list_has_both_forms() {
        let bed =
            json!({"type": "object", "additionalProperties": false, "properties": {"length": {"type": "integer"}}});
        let schema = crate::type_schema::json_schema::<Garden>("a garden");
        assert_eq!(schema["properties"]["beds"], json!({"anyOf": [bed, {"type": "array", "items": bed}]}));
        let name = json!({"type": "string"});
        assert_eq!(schema["properties"]["names"], json!({"anyOf": [name, {"type": "array", "items": name}]}));
    }
}
