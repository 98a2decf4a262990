//! Responses with explicit nulls: `null` means that a key is absent.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Keys whose values are data of tools, in which a null is a value.
const DATA: [&str; 4] = ["args", "arguments", "partialArgs", "response"];

/// Parses JSON. If a null is in the way, parses it again without nulls.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json).or_else(|error| {
        let mut value: Value = serde_json::from_slice(json)?;
        remove(&mut value);
        serde_json::from_value(value).map_err(|_| error)
    })
}

fn remove(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.iter_mut().filter(|(key, _)| !DATA.contains(&key.as_str())).for_each(|(_, value)| remove(value));
        }
        Value::Array(items) => {
            items.retain(|item| !item.is_null());
            items.iter_mut().for_each(remove);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nulls_are_removed_except_in_the_data_of_tools() {
        let mut value = json!({"a": null, "b": [null, {"c": null, "args": {"d": null}}]});
        remove(&mut value);
        assert_eq!(value, json!({"b": [{"args": {"d": null}}]}));
    }
}
