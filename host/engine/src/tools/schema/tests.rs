//! Accepted values, messages for faults, and the cost of a check.

use std::sync::atomic::Ordering;

use hatchery_core::JsonMap;
use hatchery_core::sync::RwLockExt;
use proptest::prelude::*;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;

fn fault_of(schema: Value, value: Value) -> String {
    super::fault_of(&schema, value)
}

/// Returns the reason why a schema is invalid.
fn compile_error(schema: &Value) -> String {
    compile::compile(schema, compile::weight(schema)).map(|_| ()).unwrap_err()
}

/// Checks a value without a run.
fn check_with_steps(schema: &Value, value: &Value, steps: u64) -> Result<Option<String>, Interrupt> {
    check_inline(&compile::get_or_compile(schema).unwrap(), value, steps, None)
}

/// Returns the number of steps of a check.
fn steps_of(schema: &Value, value: &Value) -> u64 {
    let budget = budget();
    check_inline(&compile::get_or_compile(schema).unwrap(), value, MAX_STEPS, Some(budget.clone())).unwrap();
    budget.spent.check_steps.load(Ordering::Relaxed)
}

fn budget() -> RunBudget {
    RunBudget {
        cancel: CancellationToken::new(),
        spent: Arc::default(),
        run_steps: MAX_RUN_STEPS,
        deadline: Instant::now() + Duration::from_secs(3600),
    }
}

#[test]
fn a_fault_has_its_position_and_the_expectation() {
    let schema = json!({
        "type": "object",
        "properties": {
            "sides": {"type": "integer", "minimum": 2},
            "who": {"type": "array", "items": {"enum": ["ann", "bob"]}},
            "at": {"anyOf": [{"type": "string"}, {"type": "null"}]}
        },
        "required": ["sides"],
        "additionalProperties": false
    });
    for (value, fault) in [
        (json!({"sides": 6}), ""),
        (json!({"sides": 6.0}), ""),
        (json!({}), "\"sides\" is a required property"),
        (json!({"sides": "six"}), "at `/sides`: \"six\" is not of type \"integer\""),
        (json!({"sides": 1}), "at `/sides`: 1 is less than the minimum of 2"),
        (json!({"sides": 6, "who": ["ann", "eve"]}), "at `/who/1`: \"eve\" is not one of [\"ann\",\"bob\"]"),
        (json!({"sides": 6, "x": 1}), "Additional properties are not allowed ('x' was unexpected)"),
        (
            json!({"sides": true, "who": 1}),
            "at `/sides`: true is not of type \"integer\"; at `/who`: 1 is not of type \"array\"",
        ),
        (
            json!({"sides": 6, "at": 5}),
            "at `/at`: 5 is not valid under any of the schemas listed in the 'anyOf' keyword \
             (at `/at`: 5 is not of type \"string\", or at `/at`: 5 is not of type \"null\")",
        ),
    ] {
        assert_eq!(fault_of(schema.clone(), value), fault);
    }
}

#[test]
fn long_values_and_long_lists_of_faults_are_truncated() {
    let fault = fault_of(json!({"type": "integer"}), json!("é".repeat(500)));
    assert!(fault.len() < 150 && fault.contains("é…"), "{fault}");
    let faults = fault_of(json!({"items": {"type": "integer"}}), json!(vec!["x"; 50]));
    assert!(faults.ends_with("at `/7`: \"x\" is not of type \"integer\"; and more"), "{faults}");
}

#[test]
fn schemas_in_geminis_dialect_are_accepted() {
    let schema = json!({
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "minLength": "2"},
            "nullable": {"type": "INTEGER", "nullable": true},
            "any": {"type": "TYPE_UNSPECIFIED"}
        },
        "required": ["type"]
    });
    assert_eq!(fault_of(schema.clone(), json!({"type": "ab", "nullable": null, "any": 1})), "");
    assert_eq!(fault_of(schema.clone(), json!({"type": 1})), "at `/type`: 1 is not of type \"string\"");
    assert_eq!(fault_of(schema.clone(), json!({"type": "a"})), "at `/type`: \"a\" is shorter than 2 characters");
    assert!(fault_of(schema, json!({"type": "ab", "nullable": "x"})).contains("not of type \"integer\""));
}

#[test]
fn an_invalid_schema_is_an_error_with_position_and_reason() {
    for (schema, place) in [
        (json!({"$ref": "http://127.0.0.1:9/schema.json"}), "http://127.0.0.1:9/schema.json"),
        (json!({"$ref": "file:///etc/hostname"}), "file:///etc/hostname"),
        (json!({"properties": {"a": {"type": "nonsense"}}}), "at `/properties/a/type`: \"nonsense\""),
        (json!({"pattern": "(?=lookahead)"}), "(?=lookahead)"),
        (json!({"enum": "ab"}), "`enum` is a string, not a list"),
        (json!("text"), "\"text\""),
    ] {
        let refusal = compile_error(&schema);
        assert!(refusal.contains(place), "{schema}: {refusal}");
        assert_eq!(schema_error(&schema), Some(refusal));
    }
}

#[test]
fn checks_against_recursive_schemas_end() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ] {
        fault_of(schema, json!({"x": 1}));
    }
    let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}}});
    assert_eq!(fault_of(tree, json!({"left": {"left": 1}})), "at `/left/left`: 1 is not of type \"object\"");
}

/// Returns a schema whose definitions each refer twice to the next.
fn doubling(keyword: &str, place: &str) -> Value {
    let next = |number| json!({"$ref": format!("#/{place}/{number}")});
    let double = |number: usize| (number.to_string(), json!({keyword: [next(number + 1), next(number + 1)]}));
    let mut definitions: JsonMap = (0..60).map(double).collect();
    definitions.insert("60".into(), json!({"type": "string"}));
    json!({place: definitions, "$ref": format!("#/{place}/0")})
}

#[test]
fn a_check_that_would_never_end_is_interrupted() {
    for (keyword, value) in [("allOf", json!("x")), ("anyOf", json!(1)), ("oneOf", json!(1))] {
        for place in ["$defs", "anywhere"] {
            assert_eq!(
                check_with_steps(&doubling(keyword, place), &value, 20_000),
                Err(Interrupt::Steps),
                "{keyword} {place}"
            );
        }
    }
    let mut old = doubling("allOf", "definitions");
    old["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert_eq!(check_with_steps(&old, &json!("x"), 20_000), Err(Interrupt::Steps));
}

#[test]
fn schemas_cannot_be_hidden_in_values_of_enum_or_const() {
    let hidden = json!({"items": {"anyOf": vec![json!({"const": 1.5}); 100]}});
    for (schema, place) in [
        (json!({"not": {"const": hidden}, "$ref": "#/not/const"}), "/not/const"),
        (json!({"not": {"enum": [hidden]}, "$ref": "#/not/enum/0"}), "/not/enum/0"),
        (json!({"not": {"enum": [hidden]}, "$ref": "#/not/hatchery:among"}), "0"),
        (json!({"examples": [hidden], "$ref": "#/examples/0"}), "/examples/0"),
    ] {
        let refusal = compile_error(&schema);
        assert!(refusal.contains(place), "{schema}: {refusal}");
    }
    for hidden in ["type", "minItems"] {
        let mut schema = json!({"x": {hidden: [doubling("allOf", "a")]}, "$ref": format!("#/x/{hidden}/0")});
        schema["a"] = schema["x"][hidden][0]["a"].clone();
        assert_eq!(check_with_steps(&schema, &json!("x"), 20_000), Err(Interrupt::Steps), "{hidden}");
    }
    assert_eq!(fault_of(json!({"const": {"$ref": 1}}), json!({"$ref": 1})), "");
    assert_eq!(fault_of(json!({"const": {"a": 1}}), json!({"a": 2})), "{\"a\":2} is not {\"a\":1}");
}

#[test]
fn the_keywords_of_the_host_have_no_effect_in_a_schema() {
    let schema = json!({"hatchery:among": 0, "hatchery:step": true, "enum": [[1]]});
    assert_eq!(fault_of(schema.clone(), json!([1])), "");
    assert_eq!(fault_of(schema, json!([2])), "[2] is not one of [[1]]");
}

#[test]
fn properties_may_have_the_names_of_keywords() {
    let schema = json!({
        "properties": {"enum": {"type": "string"}, "const": {"type": "integer"}},
        "dependentRequired": {"enum": ["const"]}
    });
    assert_eq!(fault_of(schema.clone(), json!({"enum": "a", "const": 1})), "");
    assert_eq!(fault_of(schema, json!({"enum": "a"})), "\"const\" is a required property");
}

#[test]
fn a_long_enum_is_not_searched_linearly() {
    let floats: Vec<_> = (0..19_000).map(|number| f64::from(number) + 0.5).collect();
    let schema = json!({"type": "array", "items": {"enum": floats}});
    let few = json!({"type": "array", "items": {"enum": [0.5, 1.5]}});
    let values = json!(vec![18_999.5; 1000]);
    let steps = steps_of(&schema, &values);
    assert!(steps < 10_000, "{steps}");
    assert!(steps_of(&few, &json!(vec![1.5; 1000])) < 10_000);
    assert_eq!(fault_of(schema, json!([0.5, 0.25])).split(" of ").next(), Some("at `/1`: 0.25 is not one"));
}

#[test]
fn an_enum_and_a_const_that_are_both_indexed_must_match() {
    let schema = json!({"enum": [[1], [2]], "const": [2], "allOf": [{"type": "array"}]});
    assert_eq!(fault_of(schema.clone(), json!([2])), "");
    assert_eq!(fault_of(schema.clone(), json!([1])), "[1] is not [2]");
    assert!(fault_of(schema, json!([3])).contains("[3] is not one of [[1],[2]]"));
}

#[test]
fn every_access_of_the_validator_is_counted() {
    let items = json!((0..100).map(|number| json!({"a": number})).collect::<Vec<_>>());
    let names: JsonMap = (0..12_000).map(|number| (number.to_string(), json!(1))).collect();
    let failing = json!({"anyOf": vec![json!({"const": 1}); 500]});
    for (what, schema, value) in [
        ("alternatives", json!({"items": {"anyOf": [failing, {"type": "object"}]}}), &items),
        ("not", json!({"items": {"not": failing}}), &items),
        ("required", json!({"required": names.keys().collect::<Vec<_>>()}), &Value::Object(names.clone())),
        ("unique", json!({"allOf": vec![json!({"uniqueItems": true}); 500]}), &items),
        ("kinds", json!({"items": {"allOf": vec![json!({"type": "object"}); 500]}}), &items),
        ("names", json!({"items": {"allOf": vec![json!({"propertyNames": {"maxLength": 9}}); 500]}}), &items),
        (
            "references",
            json!({"items": {"allOf": vec![json!({"$ref": "#/$defs/a"}); 500]}, "$defs": {"a": {}}}),
            &items,
        ),
    ] {
        let steps = steps_of(&schema, value);
        assert!(steps > 10_000, "{what}: {steps}");
        assert_eq!(check_with_steps(&schema, value, 10_000), Err(Interrupt::Steps), "{what}");
    }
}

#[test]
fn the_cost_of_a_pattern_depends_on_the_length_of_the_text_and_the_size_of_the_pattern() {
    let text = json!("a".repeat(100_000));
    let steps = |pattern: &str| steps_of(&json!({"pattern": pattern}), &text);
    assert!((20_000..100_000).contains(&steps("^a*$")), "{}", steps("^a*$"));
    let large = json!({"pattern": "^\\p{L}{0,20}"});
    assert_eq!(check_with_steps(&large, &text, MAX_STEPS), Err(Interrupt::Steps));
    assert_eq!(check_with_steps(&large, &json!("shortname"), INLINE_STEPS), Ok(None));
    assert!(steps_of(&json!({"minLength": 3}), &text) < 5_000);
    let names: JsonMap = (0..10).map(|number| (format!("{number}^"), json!({}))).collect();
    let value = json!({"a".repeat(10_000): 1});
    let one = steps_of(&json!({"patternProperties": {"0^": {}}}), &value);
    assert!(steps_of(&json!({ "patternProperties": names }), &value) > 5 * one);
}

#[test]
fn a_check_is_interrupted_at_its_deadline_with_its_run_and_at_the_limit_of_the_run() {
    let (schema, value) = (doubling("allOf", "$defs"), json!("x"));
    let compiled = compile::get_or_compile(&schema).unwrap();
    let interrupt_of = |budget: RunBudget| check_inline(&compiled, &value, MAX_STEPS, Some(budget)).unwrap_err();
    assert_eq!(interrupt_of(RunBudget { deadline: Instant::now(), ..budget() }), Interrupt::Deadline);
    let cancelled = budget();
    cancelled.cancel.cancel();
    assert_eq!(interrupt_of(cancelled), Interrupt::Cancelled);
    let run = budget();
    assert_eq!(interrupt_of(RunBudget { run_steps: 50_000, ..run.clone() }), Interrupt::RunSteps);
    let used_steps = run.spent.check_steps.load(Ordering::Relaxed);
    assert!((50_000..60_000).contains(&used_steps), "{used_steps}");
}

#[test]
fn an_interrupted_check_reports_its_limit() {
    let message = |interrupt| match into_result(Err(interrupt), json!(1), 7, 9) {
        Err(Failure::LimitExceeded(text)) => text,
        other => panic!("{other:?}"),
    };
    let rest =
        "against a schema of weight 7, with 9 values; send fewer values at once, or have the schema made simpler";
    assert_eq!(message(Interrupt::Steps), format!("their check takes more than 4000000 steps {rest}"));
    assert_eq!(message(Interrupt::Deadline), format!("their check takes longer than 10 s {rest}"));
    assert_eq!(
        message(Interrupt::RunSteps),
        "the checks of this run have taken 100000000 steps, which is the limit; go on in a new run"
    );
    assert_eq!(into_result(Err(Interrupt::Cancelled), json!(1), 7, 9), Err(Failure::Cancelled));
}

/// Generates any JSON, with equal numbers in different representations.
fn any_json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        (-3_i64..4).prop_map(|number| json!(number)),
        (-6_i64..7).prop_map(|number| json!(number as f64 / 2.0)),
        prop_oneof![
            Just(json!(u64::MAX)),
            Just(json!(u64::MAX as f64)),
            Just(json!(9_007_199_254_740_993_u64)),
            Just(json!(-0.0))
        ],
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number,
        "[ab]{0,2}".prop_map(Value::String)
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec(("[ab]", inner), 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn indexed_values_match_as_in_plain_validation(values in prop::collection::vec(any_json(), 1..20), value in any_json()) {
        for schema in [json!({"enum": values}), json!({"const": values[0]})] {
            let plain = jsonschema::validator_for(&schema).unwrap();
            for value in values.iter().chain([&value]) {
                let faults = fault_of(schema.clone(), value.clone());
                prop_assert_eq!(faults.is_empty(), plain.is_valid(value), "{} {}: {}", schema, value, faults);
            }
        }
    }

    #[test]
    fn counting_changes_no_result(value in any_json(), other in any_json()) {
        for schema in [
            json!({"type": ["array", "integer"], "items": {"type": ["string", "number"]}, "uniqueItems": true}),
            json!({"properties": {"a": {"const": other}}, "additionalProperties": {"type": "integer"}, "minProperties": 1}),
            json!({"anyOf": [{"minLength": 1}, {"required": ["b"]}], "propertyNames": {"maxLength": 1}}),
            json!({"contains": {"minimum": 1}, "unevaluatedProperties": false}),
        ] {
            let plain = jsonschema::validator_for(&schema).unwrap();
            prop_assert_eq!(fault_of(schema.clone(), value.clone()).is_empty(), plain.is_valid(&value), "{} {}", schema, value);
        }
    }
}

#[test]
fn a_deep_value_with_many_faults_is_still_rejected() {
    let node = json!({"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}}});
    let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [node, node]}}});
    let nested = |depth| (0..depth).fold(json!(1), |inner, _| json!({"left": inner}));
    let fault = fault_of(schema.clone(), nested(3));
    assert_eq!(
        fault.matches("at `/left").count(),
        2 + 4,
        "alternatives of alternatives are listed, and no more: {fault}"
    );
    let compiled = compile::get_or_compile(&schema).unwrap();
    let fault = check_inline(&compiled, &nested(30), 20_000, None).unwrap();
    assert_eq!(fault.as_deref(), Some("the value does not match its schema; there are too many errors to list"));
}

#[test]
fn many_items_of_a_referenced_schema_can_be_checked() {
    let schema = json!({"items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}});
    assert_eq!(fault_of(schema, json!(vec![1; 10_000])), "");
}

#[test]
fn a_long_fault_is_truncated() {
    let names: JsonMap = (0..1000).map(|number| (number.to_string(), json!(1))).collect();
    let fault = fault_of(json!({"properties": {"a": {}}, "additionalProperties": false}), Value::Object(names));
    assert!(fault.len() < 1100 && fault.ends_with('…'), "{fault}");
}

#[test]
fn a_schema_that_is_too_large_is_rejected() {
    let many = json!({"allOf": vec![json!({"pattern": "a"}); 101]});
    assert!(compile_error(&many).starts_with("it is too large: "));
    assert!(compile_error(&json!({"pattern": "((a{100}){100}){100}"})).contains("((a{100}){100}){100}"));
    assert_eq!(
        compile_error(&json!({"enum": vec![1; 20_000]})),
        "it is too large: with 200 for each pattern and 1 for any other value it comes to 20002, of at most 20000"
    );
    assert_ne!(fault_of(json!({"pattern": "^[\\w-]{1,255}$"}), json!("")), "");
}

#[test]
fn the_cache_of_schemas_is_bounded() {
    for number in 0..200 {
        assert_eq!(fault_of(json!({"enum": vec![number; 1000]}), json!(number)), "");
    }
    let cache = compile::CACHE.read_unpoisoned();
    assert!(cache.weight <= compile::MAX_CACHED_WEIGHT && cache.schemas.len() < 200);
    assert_eq!(cache.weight, cache.schemas.keys().map(compile::weight).sum::<usize>());
}
