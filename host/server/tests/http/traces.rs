//! Traces of sessions and events.

use serde_json::{Value, json};

use crate::support::{Host, problem, run_body, success};

#[tokio::test]
async fn the_spans_of_a_session_have_what_clients_require() {
    let host = Host::start().await;
    host.session("says").await;
    let events = success(host.post("/run", &run_body("says", "Hi")).await).await;
    let spans = host.get_json("/debug/trace/session/s").await;
    assert_eq!(host.get_json("/dev/apps/says/debug/trace/session/s").await, spans);
    assert_eq!(host.get_json("/dev/apps/streams/debug/trace/session/s").await, json!([]));
    assert_eq!(host.get_json("/debug/trace/session/none").await, json!([]));
    let [run, agent] = &spans.as_array().unwrap()[..] else { panic!("{spans}") };
    assert_eq!((&run["name"], &agent["name"]), (&json!("invocation"), &json!("invoke_agent says")));
    assert_eq!((run.get("parent_span_id"), &agent["parent_span_id"]), (None, &run["span_id"]));
    assert_eq!(run["trace_id"], agent["trace_id"]);
    assert_eq!((run["trace_id"].as_str().unwrap().len(), run["span_id"].as_str().unwrap().len()), (32, 16));
    for span in [run, agent] {
        assert!(span["start_time"].as_u64() <= span["end_time"].as_u64(), "{span}");
        assert_eq!(span["attributes"]["gcp.vertex.agent.invocation_id"], events[0]["invocationId"]);
        assert_eq!(span["attributes"]["gen_ai.conversation.id"], "s");
    }
    // The real client rejects the whole answer if a value is null.
    assert!(!spans.to_string().contains("null"), "{spans}");

    let id = events[0]["id"].as_str().unwrap();
    for path in [format!("/debug/trace/{id}"), format!("/dev/apps/says/debug/trace/{id}")] {
        let attributes: Value = host.get_json(&path).await;
        assert_eq!(attributes["gcp.vertex.agent.associated_event_ids"], json!([id]));
        assert_eq!(attributes["gen_ai.agent.name"], "says");
    }
    problem(host.get("/debug/trace/none").await, 404, "TRACE_NOT_FOUND").await;
    problem(host.get("/dev/apps/nobody/debug/trace/none").await, 404, "APP_NOT_FOUND").await;
}

#[tokio::test]
async fn a_failed_run_has_its_error() {
    let host = Host::start().await;
    host.session("fails").await;
    host.post("/run", &run_body("fails", "Hi")).await;
    let spans = host.get_json("/debug/trace/session/s").await;
    assert_eq!(spans[0]["attributes"]["error.type"], "AGENT_FAILED", "{spans}");
}
