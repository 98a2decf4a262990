//! Exported functions of components without our contract, as tools.

use std::sync::Arc;

use hatchery_core::{ItemResolver, ToolError};
use hatchery_wasm::{Catalog, ComponentSettings, Limits, inspect};
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{TestCatalog, call, component};

async fn refused(catalog: &Arc<Catalog>, tool: &str, args: Value) -> String {
    match call(catalog, tool, args).await.unwrap_err() {
        ToolError::Recoverable(message) => message,
        other => panic!("{other:?}"),
    }
}

fn entry() -> Value {
    json!({
        "title": "Launch",
        "at": {"year": 2026, "month": 11, "day": 21},
        "note": "bring \u{1F680}",
        "marks": ["remote"],
        "repeat": {"on": ["monday", "friday"]},
        "seen": {"some": null},
        "answer": {"ok": u64::MAX},
    })
}

#[tokio::test]
async fn functions_are_tools_with_the_schemas_of_their_types() {
    let catalog = TestCatalog::new().with("calendar").catalog().await;
    let declaration = catalog.tool("calendar/weekday-of").unwrap().declaration().clone();
    assert_eq!(declaration.description, "Calls the function `weekday-of` of `example:calendar/dates@1.2.0`.");
    let date = json!({
        "type": "object",
        "properties": {
            "year": {"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX},
            "month": {"type": "integer", "minimum": 0, "maximum": 255},
            "day": {"type": "integer", "minimum": 0, "maximum": 255},
        },
        "required": ["year", "month", "day"],
        "additionalProperties": false,
    });
    let parameters =
        json!({"type": "object", "properties": {"date": date}, "required": ["date"], "additionalProperties": false});
    assert_eq!(declaration.parameters, Some(parameters));
    let days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    assert_eq!(declaration.response, Some(json!({"type": "string", "enum": days})));
}

#[tokio::test]
async fn a_function_has_the_description_of_the_settings() {
    let described = |text: &str| {
        let descriptions = [("weekday-of".to_owned(), text.to_owned()), ("weekday".into(), "Nothing.".into())];
        ComponentSettings { descriptions: descriptions.into(), ..ComponentSettings::default() }
    };
    let test_catalog =
        TestCatalog::new().with("calendar").with_settings("calendar", described("Returns the day of the week."));
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let handle = test_catalog.open().await;
    drop(guard);
    let description =
        |catalog: &Arc<Catalog>| catalog.tool("calendar/weekday-of").unwrap().declaration().description.clone();
    assert_eq!(description(&handle.current()), "Returns the day of the week.");
    let warned = "components.calendar.descriptions: there is no function `weekday`";
    assert!(log.lines("hatchery_wasm::contract::component::functions").iter().any(|line| line.starts_with(warned)));
    let mut settings = test_catalog.options.settings.clone();
    settings.components.insert("calendar".into(), described("Says which day it is."));
    handle.configure(settings).await;
    handle.wait_until_loaded().await;
    assert_eq!(description(&handle.current()), "Says which day it is.");
}

#[tokio::test]
async fn arguments_and_results_are_converted_both_ways() {
    let catalog = TestCatalog::new().with("calendar").catalog().await;
    let date = json!({"date": {"year": 2026, "month": 11, "day": 21}});
    assert_eq!(call(&catalog, "weekday-of", date).await.unwrap(), json!("saturday"));
    assert_eq!(call(&catalog, "copy", json!({"entry": entry()})).await.unwrap(), entry());
    assert_eq!(call(&catalog, "measure", json!({"bytes": "QUJD"})).await.unwrap(), json!([3, 66.0, "A"]));
    assert_eq!(call(&catalog, "measure", json!({"bytes": ""})).await.unwrap(), json!([0, "NaN", "-"]));
    assert_eq!(call(&catalog, "forget", json!({"all": true})).await.unwrap(), Value::Null);
    assert_eq!(call(&catalog, "slowly", json!({"steps": 3})).await.unwrap(), json!(3));
    assert_eq!(call(&catalog, "version", json!({})).await.unwrap(), json!(env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn optional_fields_may_be_left_out() {
    let catalog = TestCatalog::new().with("calendar").catalog().await;
    let mut short = entry();
    for key in ["note", "seen"] {
        short.as_object_mut().unwrap().shift_remove(key);
    }
    let copied = call(&catalog, "copy", json!({"entry": short})).await.unwrap();
    assert_eq!((&copied["note"], &copied["seen"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn functions_of_one_name_are_distinguished_by_their_interfaces() {
    let catalog = TestCatalog::new().with("calendar").catalog().await;
    assert_eq!(call(&catalog, "texts-describe", json!({"text": "Grüße"})).await.unwrap(), json!("5 letters"));
    assert_eq!(
        call(&catalog, "dates-describe", json!({"entry": entry()})).await.unwrap(),
        json!("Launch on 2026-11-21")
    );
    assert!(catalog.tool("calendar/describe").is_err());
}

#[tokio::test]
async fn errors_of_functions_are_returned_to_the_model() {
    let catalog = TestCatalog::new().with("calendar").catalog().await;
    let date = json!({"date": {"year": 2026, "month": 13, "day": 1}});
    assert_eq!(refused(&catalog, "weekday-of", date).await, "there is no month 13");
    let failure: Value = serde_json::from_str(&refused(&catalog, "refuse", json!({})).await).unwrap();
    assert_eq!((&failure["title"], &failure["repeat"]), (&json!("closed"), &json!("never")));
    assert_eq!(
        refused(&catalog, "weekday-of", json!({"date": {"year": 1, "month": 300, "day": 1}})).await,
        "the arguments of `weekday-of` do not match their types: `date.month` must be a whole number from 0 to 255, not 300"
    );
    let crashed = refused(&catalog, "crash", json!({})).await;
    assert_eq!(crashed, "tool `crash` of component `calendar` failed: it panicked: the page is torn");
}

#[tokio::test]
async fn a_result_that_is_too_large_names_the_limit() {
    let limits = Limits { result: 10_000, ..Limits::default() };
    let catalog = TestCatalog::new().with("calendar").with_limits(limits).catalog().await;
    assert_eq!(call(&catalog, "fill", json!({"count": 9_000})).await.unwrap().as_str().map(str::len), Some(9_000));
    let error = refused(&catalog, "fill", json!({"count": 10_001})).await;
    assert!(error.ends_with("it exceeded its limit of 10000 B in one result"), "{error}");
}

/// Returns a component whose function `list` returns `count` items of this type, which are zero or `bits`.
fn listing(definition: &str, item: &str, bits: u32) -> Vec<u8> {
    let text = format!(
        "(component
            (core module $m (memory (export \"m\") 16)
                (func (export \"list\") (param i32) (result i32)
                    (memory.fill (i32.const 16) (i32.const {bits}) (i32.const 1000000))
                    (i32.store (i32.const 0) (i32.const 16))
                    (i32.store (i32.const 4) (local.get 0))
                    (i32.const 0)))
            (core instance $i (instantiate $m))
            {definition}
            (func $list (param \"count\" u32) (result (list {item}))
                (canon lift (core func $i \"list\") (memory (core memory $i \"m\"))))
            (export \"list\" (func $list)))"
    );
    wat::parse_str(text).unwrap()
}

#[tokio::test]
async fn a_result_counts_to_the_memory_as_it_is_as_json() {
    let test_catalog = TestCatalog::new().with_limits(Limits { memory: 4 << 20, ..Limits::default() });
    test_catalog.write("lister.wasm", listing("", "bool", 1));
    let catalog = test_catalog.catalog().await;
    let result = call(&catalog, "list", json!({"count": 10_000})).await.unwrap();
    assert_eq!(result, json!(vec![true; 10_000]));
    let error = refused(&catalog, "list", json!({"count": 200_000})).await;
    assert_eq!(error, "tool `list` of component `lister` failed: it exceeded its limit of 4 MiB of memory");
}

#[tokio::test]
async fn a_list_of_flags_takes_no_more_memory_than_other_results() {
    let names: Vec<_> =
        (0..32).map(|flag| char::from(b'a' + flag % 26).to_string().repeat(1 + usize::from(flag) / 26)).collect();
    let written: String = names.iter().map(|name| format!(" \"{name}\"")).collect();
    let definition = format!("(type $marks (flags{written})) (export $exported \"marks\" (type $marks))");
    let test_catalog = TestCatalog::new();
    test_catalog.write("flagger.wasm", listing(&definition, "$exported", 255));
    let catalog = test_catalog.catalog().await;
    let result = call(&catalog, "list", json!({"count": 100})).await.unwrap();
    assert_eq!(result, json!(vec![names; 100]));
    // Each item is 32 strings in the host and 4 bytes in the component.
    let error = refused(&catalog, "list", json!({"count": 20_000})).await;
    assert_eq!(error, "tool `list` of component `flagger` failed: it exceeded its limit of 8 MiB in one result");
}

#[tokio::test]
async fn functions_with_handles_are_skipped_and_named_if_there_is_no_other() {
    let catalog = TestCatalog::new().with("calendar").catalog().await;
    assert!(catalog.tool("calendar/sharpen").is_err() && catalog.tool("calendar/[method]pen.draw").is_err());
    let test_catalog = TestCatalog::new();
    let pen = "(component
        (type $pen (resource (rep i32)))
        (core module $m (func (export \"sharpen\") (param i32)))
        (core instance $i (instantiate $m))
        (func $sharpen (param \"pen\" (own $pen)) (canon lift (core func $i \"sharpen\")))
        (export $exported \"pen\" (type $pen))
        (export \"sharpen\" (func $sharpen) (func (param \"pen\" (own $exported)))))";
    test_catalog.write("stationery.wasm", wat::parse_str(pen).unwrap());
    let catalog = test_catalog.open().await.current();
    assert_eq!(
        test_catalog.reason(&catalog, "stationery.wasm"),
        "component `stationery` cannot be loaded: none of its functions can be a tool, since tools take and give plain \
         data: `sharpen` uses a resource"
    );
}

#[tokio::test]
async fn types_that_expand_exponentially_are_refused() {
    // Each record contains the previous one twice, so that the last one expands to 2^20 nodes.
    let mut text = String::from("(component (type $r0 (record (field \"a\" u8)))\n(export $e0 \"r0\" (type $r0))\n");
    for level in 1..=20 {
        let below = level - 1;
        text += &format!("(type $r{level} (record (field \"a\" $e{below}) (field \"b\" $e{below})))\n");
        text += &format!("(export $e{level} \"r{level}\" (type $r{level}))\n");
    }
    text += "(core module $m (memory (export \"m\") 1)
        (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) i32.const 0)
        (func (export \"f\") (param i32)))
        (core instance $i (instantiate $m))
        (func $f (param \"it\" $e20)
            (canon lift (core func $i \"f\") (memory (core memory $i \"m\")) (realloc (core func $i \"realloc\"))))
        (export \"f\" (func $f)))";
    let test_catalog = TestCatalog::new();
    test_catalog.write("growing.wasm", wat::parse_str(&text).unwrap());
    let catalog = test_catalog.open().await.current();
    let reason = test_catalog.reason(&catalog, "growing.wasm");
    assert!(reason.contains("`f` has types that are too large") || reason.contains("effective type size"), "{reason}");
}

#[tokio::test]
async fn an_inspection_shows_the_functions() {
    let test_catalog = TestCatalog::new();
    let bytes = std::fs::read(component("calendar")).unwrap();
    let inspection = inspect(&test_catalog.options, "calendar", bytes).await.unwrap();
    assert_eq!(inspection.contract, None);
    assert!(inspection.exports.contains(&"example:calendar/dates@1.2.0".to_owned()), "{:?}", inspection.exports);
    let names: Vec<_> = inspection.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert!(names.contains(&"weekday-of") && names.contains(&"version") && !names.contains(&"sharpen"), "{names:?}");
}

#[tokio::test]
async fn long_names_that_are_used_often_count_to_the_size_of_a_type() {
    let cases: String = (0..200).map(|case| format!(" \"c{case}\"")).collect();
    let parts = " $e".repeat(150);
    let text = format!(
        "(component (type $cases (enum{cases})) (export $e \"cases\" (type $cases))
        (core module $m (memory (export \"m\") 1)
            (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) i32.const 0)
            (func (export \"f\") (param i32)))
        (core instance $i (instantiate $m))
        (type $many (tuple{parts}))
        (func $f (param \"it\" $many)
            (canon lift (core func $i \"f\") (memory (core memory $i \"m\")) (realloc (core func $i \"realloc\"))))
        (export \"f\" (func $f)))"
    );
    let test_catalog = TestCatalog::new();
    test_catalog.write("wordy.wasm", wat::parse_str(&text).unwrap());
    let catalog = test_catalog.open().await.current();
    let reason = test_catalog.reason(&catalog, "wordy.wasm");
    assert!(reason.contains("`f` has types that are too large"), "{reason}");
}
