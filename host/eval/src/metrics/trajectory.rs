//! Comparison of tool calls by name and arguments.

use hatchery_core::FunctionCall;
use serde_json::Value;

use crate::criteria::MatchType;

/// Returns true if the calls are those that are expected.
pub(crate) fn matches(match_type: MatchType, actual: &[&FunctionCall], expected: &[&FunctionCall]) -> bool {
    match match_type {
        MatchType::Exact => {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(one, other)| is_same_call(one, other))
        }
        MatchType::InOrder => {
            let mut rest = actual.iter();
            expected.iter().all(|expected| rest.any(|actual| is_same_call(actual, expected)))
        }
        MatchType::AnyOrder => {
            let mut rest = actual.to_vec();
            expected.iter().all(|expected| {
                let position = rest.iter().position(|actual| is_same_call(actual, expected));
                position.map(|position| rest.swap_remove(position)).is_some()
            })
        }
    }
}

fn is_same_call(one: &FunctionCall, other: &FunctionCall) -> bool {
    one.name == other.name
        && one.args.len() == other.args.len()
        && one.args.iter().all(|(key, value)| other.args.get(key).is_some_and(|other| is_same_value(value, other)))
}

/// Compares JSON; numbers are the same if their values are, so that 6 is 6.0.
fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        // As floats, neighbouring ids above 2^53 would be the same.
        (Value::Number(one), Value::Number(other)) if one.is_f64() || other.is_f64() => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_value(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| is_same_value(value, other)))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(names: &str) -> Vec<FunctionCall> {
        let call = |name: char| FunctionCall { name: name.into(), ..FunctionCall::default() };
        names.chars().map(call).collect()
    }

    fn is_match(match_type: MatchType, actual: &str, expected: &str) -> bool {
        let (actual, expected) = (calls(actual), calls(expected));
        matches(match_type, &actual.iter().collect::<Vec<_>>(), &expected.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_match_type_decides_about_order_and_further_calls() {
        for (actual, expected, exact, in_order, any_order) in [
            ("", "", true, true, true),
            ("ab", "ab", true, true, true),
            ("axb", "ab", false, true, true),
            ("ba", "ab", false, false, true),
            ("a", "ab", false, false, false),
            ("ab", "aab", false, false, false),
            ("aab", "aba", false, false, true),
            ("x", "", false, true, true),
        ] {
            let found =
                [MatchType::Exact, MatchType::InOrder, MatchType::AnyOrder].map(|it| is_match(it, actual, expected));
            assert_eq!(found, [exact, in_order, any_order], "{actual:?} for {expected:?}");
        }
    }

    #[test]
    fn arguments_are_compared_by_value() {
        let call = |args: Value| FunctionCall {
            name: "f".into(),
            args: args.as_object().unwrap().clone(),
            ..FunctionCall::default()
        };
        let is_same = |one, other| is_same_call(&call(one), &call(other));
        assert!(is_same(json!({"n": 6, "list": [1, {"a": 2.0}]}), json!({"list": [1.0, {"a": 2}], "n": 6.0})));
        assert!(!is_same(json!({"n": 6}), json!({"n": "6"})));
        assert!(!is_same(json!({"n": 6}), json!({"n": 6, "m": null})));
        assert!(!is_same(json!({"n": [1, 2]}), json!({"n": [2, 1]})));
        // These neighbours are the same float.
        assert!(is_same(json!({"n": 9007199254740993_u64}), json!({"n": 9007199254740993_u64})));
        assert!(!is_same(json!({"n": 9007199254740993_u64}), json!({"n": 9007199254740992_u64})));
        assert!(is_same(json!({"n": 9007199254740993_u64}), json!({"n": 9007199254740992.0})));
    }
}
