//! Round trips of values, and the paths in errors.

use proptest::collection::{hash_set, vec};
use proptest::prelude::*;
use serde_json::json;

use super::super::schema;
use super::*;
use crate::runtime::store::meter::{heap_size, parsed_size};

fn field(name: &str, shape: Shape) -> Field {
    Field { name: name.into(), shape }
}

fn case(name: &str, payload: Option<Shape>) -> Case {
    Case { name: name.into(), payload }
}

fn mismatch(shape: &Shape, value: Value) -> String {
    to_val(shape, value).unwrap_err().to_string()
}

fn names() -> impl Strategy<Value = Vec<String>> {
    hash_set("[a-z]{1,4}", 1..4).prop_map(|names| names.into_iter().collect())
}

fn integers() -> impl Strategy<Value = Integer> {
    use Integer::*;
    prop::sample::select(vec![S8, U8, S16, U16, S32, U32, S64, U64])
}

fn shapes() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Bool),
        integers().prop_map(Shape::Integer),
        Just(Shape::Float32),
        Just(Shape::Float64),
        Just(Shape::Char),
        Just(Shape::String),
        Just(Shape::Bytes),
        names().prop_map(Shape::Enum),
        names().prop_map(Shape::Flags),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = || prop::option::of(inner.clone().prop_map(Box::new));
        prop_oneof![
            inner.clone().prop_map(|item| Shape::List(Box::new(item))),
            inner.clone().prop_map(|value| Shape::Option(Box::new(value))),
            vec(inner.clone(), 1..4).prop_map(Shape::Tuple),
            (boxed(), boxed()).prop_map(|(ok, error)| Shape::Result { ok, error }),
            (names(), vec(inner.clone(), 3)).prop_map(|(names, shapes)| Shape::Record(
                names.into_iter().zip(shapes).map(|(name, shape)| Field { name, shape }).collect()
            )),
            (names(), vec(prop::option::of(inner), 3)).prop_map(|(names, payloads)| Shape::Variant(
                names.into_iter().zip(payloads).map(|(name, payload)| Case { name, payload }).collect()
            )),
        ]
    })
}

/// Generates a value of the shape.
fn value_of(shape: &Shape) -> BoxedStrategy<Val> {
    let payload_val = |shape: Option<&Shape>| match shape {
        None => Just(None).boxed(),
        Some(shape) => value_of(shape).prop_map(|value| Some(Box::new(value))).boxed(),
    };
    match shape {
        Shape::Bool => any::<bool>().prop_map(Val::Bool).boxed(),
        Shape::Integer(integer) => match integer {
            Integer::S8 => any::<i8>().prop_map(Val::S8).boxed(),
            Integer::U8 => any::<u8>().prop_map(Val::U8).boxed(),
            Integer::S16 => any::<i16>().prop_map(Val::S16).boxed(),
            Integer::U16 => any::<u16>().prop_map(Val::U16).boxed(),
            Integer::S32 => any::<i32>().prop_map(Val::S32).boxed(),
            Integer::U32 => any::<u32>().prop_map(Val::U32).boxed(),
            Integer::S64 => any::<i64>().prop_map(Val::S64).boxed(),
            Integer::U64 => any::<u64>().prop_map(Val::U64).boxed(),
        },
        Shape::Float32 => prop::num::f32::ANY.prop_map(Val::Float32).boxed(),
        Shape::Float64 => prop::num::f64::ANY.prop_map(Val::Float64).boxed(),
        Shape::Char => any::<char>().prop_map(Val::Char).boxed(),
        Shape::String => any::<String>().prop_map(Val::String).boxed(),
        Shape::Bytes => {
            vec(any::<u8>(), 0..9).prop_map(|bytes| Val::List(bytes.into_iter().map(Val::U8).collect())).boxed()
        }
        Shape::List(item) => vec(value_of(item), 0..4).prop_map(Val::List).boxed(),
        Shape::Tuple(items) => items.iter().map(value_of).collect::<Vec<_>>().prop_map(Val::Tuple).boxed(),
        Shape::Record(fields) => {
            let names: Vec<_> = fields.iter().map(|field| field.name.clone()).collect();
            let values: Vec<_> = fields.iter().map(|field| value_of(&field.shape)).collect();
            values.prop_map(move |values| Val::Record(names.iter().cloned().zip(values).collect())).boxed()
        }
        Shape::Variant(cases) => {
            let cases: Vec<_> = cases
                .iter()
                .map(|Case { name, payload }| {
                    let name = name.clone();
                    payload_val(payload.as_ref())
                        .prop_map(move |payload_val| Val::Variant(name.clone(), payload_val))
                        .boxed()
                })
                .collect();
            proptest::strategy::Union::new(cases).boxed()
        }
        Shape::Enum(names) => prop::sample::select(names.clone()).prop_map(Val::Enum).boxed(),
        Shape::Option(inner) => {
            prop::option::of(value_of(inner)).prop_map(|value| Val::Option(value.map(Box::new))).boxed()
        }
        Shape::Result { ok, error } => prop_oneof![
            payload_val(ok.as_deref()).prop_map(|value| Val::Result(Ok(value))),
            payload_val(error.as_deref()).prop_map(|value| Val::Result(Err(value))),
        ]
        .boxed(),
        Shape::Flags(names) => prop::sample::subsequence(names.clone(), 0..=names.len()).prop_map(Val::Flags).boxed(),
    }
}

/// Compares by `Debug`, in which NaN equals itself.
fn written(value: &Val) -> String {
    format!("{value:?}")
}

proptest! {
    #[test]
    fn a_value_survives_json_that_matches_the_schema(
        (shape, value) in shapes().prop_flat_map(|shape| {
            let value = value_of(&shape);
            (Just(shape), value)
        })
    ) {
        let before = written(&value);
        let json = from_val(&shape, value).unwrap();
        let read: Value = serde_json::from_str(&json.to_string()).unwrap();
        let odd_floats = ["NaN", "Infinity"].iter().any(|odd| json.to_string().contains(odd));
        if !odd_floats {
            let schema = jsonschema::validator_for(&schema::json_schema(&shape)).unwrap();
            prop_assert!(schema.is_valid(&read), "{read} does not fit {}", schema::json_schema(&shape));
        }
        prop_assert_eq!(written(&to_val(&shape, read).unwrap()), before);
    }

    #[test]
    fn any_json_is_accepted_or_refused(shape in shapes(), text in "[\\[\\]{}:,\"a-z0-9.]{0,24}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = to_val(&shape, value);
        }
    }
}

#[test]
fn errors_name_the_path_of_the_value() {
    let time = Shape::Record(vec![
        field("hour", Shape::Integer(Integer::U8)),
        field("zone", Shape::Option(Box::new(Shape::String))),
    ]);
    let params = [field("when", Shape::List(Box::new(time)))];
    let refused = |args: Value| {
        let Value::Object(args) = args else { panic!("no object") };
        arguments(&params, args).unwrap_err().to_string()
    };
    assert_eq!(
        refused(json!({"when": [{"hour": 1}, {"hour": 300}]})),
        "`when[1].hour` must be a whole number from 0 to 255, not 300"
    );
    assert_eq!(
        refused(json!({"when": [{"hour": 1.5}]})),
        "`when[0].hour` must be a whole number from 0 to 255, not 1.5"
    );
    assert_eq!(refused(json!({"when": [{"zone": "UTC"}]})), "`when[0].hour` is missing");
    assert_eq!(refused(json!({"when": [{"hour": 1, "zone": 3}]})), "`when[0].zone` must be a string, not 3");
    assert_eq!(refused(json!({"when": [], "who": 1})), "`who` is unknown; available: `when`");
    assert_eq!(refused(json!({})), "`when` is missing");
    assert_eq!(refused(json!({"when": "noon"})), "`when` must be an array, not \"noon\"");
}

#[test]
fn errors_name_the_expected_type() {
    let names = || vec!["red".to_owned(), "blue".to_owned()];
    assert_eq!(mismatch(&Shape::Bool, json!(1)), "must be true or false, not 1");
    assert_eq!(mismatch(&Shape::Char, json!("ab")), "must be one character, not \"ab\"");
    assert_eq!(mismatch(&Shape::Float64, json!("x")), "must be a number, not \"x\"");
    assert_eq!(mismatch(&Shape::Enum(names()), json!("green")), "must be one of `red`, `blue`, not \"green\"");
    assert_eq!(mismatch(&Shape::Flags(names()), json!(["green"])), "`[0]` must be one of `red`, `blue`, not \"green\"");
    assert_eq!(
        mismatch(&Shape::Tuple(vec![Shape::Bool; 2]), json!([true])),
        "must be an array of 2, not an array of 1"
    );
    assert!(mismatch(&Shape::Bytes, json!("?")).starts_with("must be base64: "));
    let result = Shape::Result { ok: Some(Box::new(Shape::Bool)), error: None };
    assert_eq!(mismatch(&result, json!(true)), "must be an object with the key `ok` or `error`, not true");
    assert_eq!(mismatch(&result, json!({"error": 1})), "`error` must be null, not 1");
    let twice = Shape::Option(Box::new(Shape::Option(Box::new(Shape::Bool))));
    assert_eq!(mismatch(&twice, json!(true)), "must be `null` or an object with the key `some`, not true");
    let variant = Shape::Variant(vec![case("none", None), case("at", Some(Shape::Bool))]);
    assert_eq!(mismatch(&variant, json!("at")), "must be one of \"none\", {\"at\": …}, not \"at\"");
    assert_eq!(
        mismatch(&variant, json!({"to": 1})),
        "must be an object with one of the keys `none`, `at`, not an object"
    );
}

#[test]
fn json_is_never_larger_than_was_charged() {
    let tuples_of = |count: usize| Shape::List(Box::new(Shape::Tuple(vec![Shape::Bool; count])));
    let twice = Shape::Option(Box::new(Shape::Option(Box::new(Shape::Bool))));
    let result = || Shape::Result { ok: Some(Box::new(Shape::String)), error: None };
    let variant = Shape::Variant(vec![case("at", Some(Shape::Bool))]);
    let record = Shape::Record(["a", "b", "c", "d", "e"].map(|name| field(name, Shape::String)).to_vec());
    let text = json!("text");
    for (shape, json) in [
        (Shape::Bytes, json!("QUJD")),
        (Shape::Char, json!("ü")),
        (Shape::List(Box::new(Shape::Bool)), json!([])),
        (Shape::List(Box::new(Shape::Bool)), json!(vec![true; 5])),
        (Shape::List(Box::new(Shape::Bool)), json!(vec![true; 1025])),
        (tuples_of(1), json!(vec![[true]; 1025])),
        (tuples_of(5), json!(vec![[true; 5]; 1025])),
        (Shape::Record(vec![field("name", Shape::String)]), json!({"name": "text"})),
        (record, json!({"a": text, "b": text, "c": text, "d": text, "e": text})),
        (Shape::Flags(vec!["red".into(), "blue".into()]), json!(["red", "blue"])),
        (twice, json!({"some": true})),
        (result(), json!({"ok": "text"})),
        (result(), json!({"error": null})),
        (Shape::List(Box::new(variant)), json!(vec![json!({"at": true}); 1025])),
    ] {
        let value = to_val(&shape, json.clone()).unwrap();
        let charged = size(&value);
        let taken = JSON_NODE + heap_size(&from_val(&shape, value).unwrap());
        assert!(charged >= taken, "{charged} < {taken} for {json}");
    }
    let infinite = Val::Float64(f64::NEG_INFINITY);
    let json = from_val(&Shape::Float64, infinite.clone()).unwrap();
    assert!(size(&infinite) >= JSON_NODE + heap_size(&json), "{json}");
}

#[test]
fn a_value_is_charged_as_its_json_would_be() {
    for (shape, json) in [
        (Shape::List(Box::new(Shape::Bool)), json!([true, false, true])),
        (Shape::Record(vec![field("a", Shape::Bool), field("b", Shape::Bool)]), json!({"a": true, "b": false})),
        (Shape::Option(Box::new(Shape::Bool)), json!(true)),
    ] {
        let nodes = |size: u64| size / JSON_NODE;
        let value = to_val(&shape, json.clone()).unwrap();
        assert_eq!(nodes(size(&value)), nodes(parsed_size(&json.to_string())), "{json}");
    }
}

#[test]
fn a_whole_float_is_a_whole_number() {
    assert_eq!(to_val(&Shape::Integer(Integer::U8), json!(3.0)).unwrap(), Val::U8(3));
}
