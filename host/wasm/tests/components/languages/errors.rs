//! Messages about errors of code, for authors and for models.

use serde_json::json;

use super::{catalog, error_text, is_there};
use crate::imports::CapturedLog;
use crate::support::call;

#[tokio::test]
async fn an_exception_is_logged_with_its_file_and_line() {
    for (component, start, place) in [
        ("polyglot_js", "Error: no flour", "at run (index.js:"),
        ("polyglot_python", "Traceback (most recent call last):", "File \"app.py\", line "),
    ] {
        if !is_there(component) {
            continue;
        }
        let catalog = catalog(component).await;
        let log = CapturedLog::default();
        let guard = tracing::subscriber::set_default(log.clone());
        assert_eq!(error_text(call(&catalog, "refuse", json!({"reason": "no flour"})).await), "no flour");
        drop(guard);
        let lines = log.lines("hatchery::component");
        let [line] = lines.as_slice() else { panic!("{component}: {lines:?}") };
        assert!(line.starts_with(start) && line.contains(place) && !line.contains("hatchery_guest/"), "{line}");
    }
}

#[tokio::test]
async fn a_promise_that_is_never_resolved_is_described_in_words() {
    if !is_there("polyglot_js") {
        return;
    }
    let catalog = catalog("polyglot_js").await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    assert_eq!(
        error_text(call(&catalog, "hang", json!({})).await),
        "tool `hang` of component `polyglot_js` failed: it crashed: it ended without a result"
    );
    drop(guard);
    let logged = log.lines("hatchery_wasm::error").concat();
    let advice = "; it waits for something that never happens, such as a promise that is never resolved";
    assert!(logged.contains(advice), "{logged}");
}
