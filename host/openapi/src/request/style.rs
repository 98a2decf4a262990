//! Styles of parameters: how arrays and objects are written.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::as_text;
use crate::document::{Parameter, Style};

/// Unreserved characters, which are never percent-encoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Characters that are kept if a parameter allows reserved ones. `&`, `#`, `+` and `%` would change the query.
const RESERVED: &AsciiSet = &UNRESERVED
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'[')
    .remove(b']')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';')
    .remove(b'=');

/// Characters that are kept in `application/x-www-form-urlencoded`. The space becomes `+` afterwards.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_').remove(b' ');

/// Percent-encodes a text.
pub(crate) fn encode_component(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Encodes a text as `application/x-www-form-urlencoded`.
pub(crate) fn encode_form(text: &str) -> String {
    utf8_percent_encode(text, FORM).to_string().replace(' ', "+")
}

/// Returns the value of a parameter in the path.
pub(super) fn path_value(parameter: &Parameter, value: &Value) -> String {
    let encode: &dyn Fn(&str) -> String = &encode_component;
    match parameter.style {
        Style::Label => {
            let separator = if parameter.is_exploded { "." } else { "," };
            format!(".{}", list(parameter, value, separator, encode))
        }
        Style::Matrix => matrix(parameter, value),
        _ => list(parameter, value, ",", encode),
    }
}

/// Returns the pairs `;name=value` of a parameter in the path.
fn matrix(parameter: &Parameter, value: &Value) -> String {
    let pair = |name: &str, value: &Value| format!(";{}={}", encode_component(name), encode_component(&as_text(value)));
    match value {
        Value::Array(items) if parameter.is_exploded => items.iter().map(|item| pair(&parameter.name, item)).collect(),
        Value::Object(map) if parameter.is_exploded => map.iter().map(|(key, value)| pair(key, value)).collect(),
        value => {
            let text = list(parameter, value, ",", &encode_component);
            format!(";{}={text}", encode_component(&parameter.name))
        }
    }
}

/// Returns the value of a parameter in a header.
pub(super) fn header_value(parameter: &Parameter, value: &Value) -> String {
    list(parameter, value, ",", &ToOwned::to_owned)
}

/// Returns the values of a parameter without its name.
fn list(parameter: &Parameter, value: &Value, separator: &str, encode: &dyn Fn(&str) -> String) -> String {
    if parameter.style == Style::Json {
        return encode(&value.to_string());
    }
    match value {
        Value::Null => String::new(),
        Value::Array(items) => join(items.iter().map(|item| encode(&as_text(item))), separator),
        Value::Object(map) if parameter.is_exploded => {
            join(map.iter().map(|(key, value)| format!("{}={}", encode(key), encode(&as_text(value)))), separator)
        }
        Value::Object(map) => {
            join(map.iter().flat_map(|(key, value)| [encode(key), encode(&as_text(value))]), separator)
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => encode(&as_text(value)),
    }
}

/// Returns the pairs `name=value` of a parameter in the query or in a cookie.
pub(super) fn query_pairs(parameter: &Parameter, value: &Value) -> Vec<String> {
    let unencoded = if parameter.allows_reserved { RESERVED } else { UNRESERVED };
    let encode = |text: &str| utf8_percent_encode(text, unencoded).to_string();
    let name = encode_component(&parameter.name);
    let named = |value: String| format!("{name}={value}");
    let separator = match parameter.style {
        Style::SpaceDelimited => "%20",
        Style::PipeDelimited => "%7C",
        Style::Simple | Style::Label | Style::Matrix | Style::Form | Style::DeepObject | Style::Json => ",",
    };
    match (parameter.style, value) {
        (Style::Json, value) => vec![named(encode_component(&value.to_string()))],
        (Style::DeepObject, Value::Object(_) | Value::Array(_)) => {
            let mut pairs = Vec::new();
            deep_object(&parameter.name, value, &encode, &mut pairs);
            pairs
        }
        (_, Value::Array(items)) if parameter.is_exploded => {
            items.iter().map(|item| named(encode(&as_text(item)))).collect()
        }
        (_, Value::Array(items)) => vec![named(join(items.iter().map(|item| encode(&as_text(item))), separator))],
        (_, Value::Object(map)) if parameter.is_exploded => {
            map.iter().map(|(key, value)| format!("{}={}", encode_component(key), encode(&as_text(value)))).collect()
        }
        (_, Value::Object(map)) => {
            let texts = map.iter().flat_map(|(key, value)| [encode(key), encode(&as_text(value))]);
            vec![named(join(texts, separator))]
        }
        (_, value) => vec![named(encode(&as_text(value)))],
    }
}

/// Adds the pairs `name[key]=value` of an object, of arrays in it one for each item. Items that are no single values
/// have their index as key.
fn deep_object(name: &str, value: &Value, encode: &dyn Fn(&str) -> String, pairs: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| deep_object(&format!("{name}[{key}]"), value, encode, pairs));
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| deep_object(&format!("{name}[{index}]"), item, encode, pairs));
        }
        Value::Array(items) => items.iter().for_each(|item| deep_object(name, item, encode, pairs)),
        Value::Null => {}
        value => pairs.push(format!("{}={}", encode_component(name), encode(&as_text(value)))),
    }
}

fn join(texts: impl Iterator<Item = String>, separator: &str) -> String {
    texts.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::Location;

    fn parameter(style: Style, is_exploded: bool) -> Parameter {
        Parameter {
            argument: "p".into(),
            name: "p".into(),
            location: Location::Query,
            style,
            is_exploded,
            allows_reserved: false,
        }
    }

    #[test]
    fn queries_are_written_as_the_specification_shows() {
        let (list, object) = (json!(["blue", "black"]), json!({"R": 100, "G": 200}));
        for (style, is_exploded, of_list, of_object) in [
            (Style::Form, true, "p=blue&p=black", "R=100&G=200"),
            (Style::Form, false, "p=blue,black", "p=R,100,G,200"),
            (Style::SpaceDelimited, false, "p=blue%20black", "p=R%20100%20G%20200"),
            (Style::PipeDelimited, false, "p=blue%7Cblack", "p=R%7C100%7CG%7C200"),
            (Style::DeepObject, true, "p=blue&p=black", "p%5BR%5D=100&p%5BG%5D=200"),
            (Style::Json, true, "p=%5B%22blue%22%2C%22black%22%5D", "p=%7B%22R%22%3A100%2C%22G%22%3A200%7D"),
        ] {
            let parameter = parameter(style, is_exploded);
            assert_eq!(query_pairs(&parameter, &list).join("&"), of_list, "{style:?}");
            assert_eq!(query_pairs(&parameter, &object).join("&"), of_object, "{style:?}");
        }
        let nested = json!({"a": {"b": [1, 2]}, "c": null});
        let pairs = query_pairs(&parameter(Style::DeepObject, true), &nested);
        assert_eq!(pairs, ["p%5Ba%5D%5Bb%5D=1", "p%5Ba%5D%5Bb%5D=2"]);
        let list = json!([{"a": 1}, {"a": 2}]);
        let pairs = query_pairs(&parameter(Style::DeepObject, true), &list);
        assert_eq!(pairs, ["p%5B0%5D%5Ba%5D=1", "p%5B1%5D%5Ba%5D=2"]);
    }

    #[test]
    fn paths_and_headers_are_written_as_the_specification_shows() {
        let (list, object) = (json!(["blue", "b/k"]), json!({"R": 100, "G": 200}));
        let (plain, exploded) = (parameter(Style::Simple, false), parameter(Style::Simple, true));
        assert_eq!(path_value(&plain, &list), "blue,b%2Fk");
        assert_eq!(header_value(&plain, &list), "blue,b/k");
        assert_eq!(path_value(&plain, &object), "R,100,G,200");
        assert_eq!(path_value(&exploded, &object), "R=100,G=200");
        assert_eq!(path_value(&plain, &json!(1.5)), "1.5");
        let one = json!("a/b");
        for (style, is_exploded, of_one, of_list, of_object) in [
            (Style::Label, false, ".a%2Fb", ".blue,b%2Fk", ".R,100,G,200"),
            (Style::Label, true, ".a%2Fb", ".blue.b%2Fk", ".R=100.G=200"),
            (Style::Matrix, false, ";p=a%2Fb", ";p=blue,b%2Fk", ";p=R,100,G,200"),
            (Style::Matrix, true, ";p=a%2Fb", ";p=blue;p=b%2Fk", ";R=100;G=200"),
        ] {
            let parameter = parameter(style, is_exploded);
            let values = [&one, &list, &object].map(|value| path_value(&parameter, value));
            assert_eq!(values, [of_one, of_list, of_object], "{style:?}");
        }
    }

    #[test]
    fn reserved_characters_stay_where_a_parameter_allows_them() {
        let parameter = Parameter { allows_reserved: true, ..parameter(Style::Form, true) };
        assert_eq!(query_pairs(&parameter, &json!("a/b?c=d&e#f g")), ["p=a/b?c=d%26e%23f%20g"]);
    }
}
