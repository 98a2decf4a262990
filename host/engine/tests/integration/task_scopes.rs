//! The scope value of a caller, in the tasks of the runs that it starts.

use std::sync::{Arc, Mutex};

use hatchery_core::{AgentKind, Tool};
use hatchery_engine::AgentTool;
use hatchery_engine::tasks::{scope_value, with_scope_value};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn tools_see_the_scope_value_of_the_caller_of_their_run_in_whatever_task_they_run() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let values = seen.clone();
    let look = tool("look", move |_, _| {
        values.lock().unwrap().push(scope_value::<u32>());
        Ok(json!(true))
    });
    let twice = Reply::call("look", json!({})).and_call("look", json!({}));
    let helper =
        llm_with("helper", Scripted::sequence([twice, Reply::text("done")]), |llm| llm.tools = vec![look.clone()]);
    let helper: Arc<dyn Tool> = Arc::new(AgentTool::new(helper).unwrap());
    let both = Reply::call("look", json!({})).and_call("helper", json!({"request": "look"}));
    let child =
        llm_with("child", Scripted::sequence([both, Reply::text("done")]), |llm| llm.tools = vec![look, helper]);
    let app = Harness::new(workflow("root", AgentKind::Parallel, vec![child])).await;
    with_scope_value(7_u32, app.run("hi")).await;
    assert_eq!(*seen.lock().unwrap(), [Some(7); 3]);
}

#[tokio::test]
async fn a_scope_value_has_a_type_and_an_end() {
    let inner = with_scope_value("inner", async { (scope_value::<&str>(), scope_value::<u32>()) });
    let outer = with_scope_value(7_u32, async { (inner.await, scope_value::<u32>()) });
    assert_eq!(outer.await, ((Some("inner"), None), Some(7)));
    assert_eq!(scope_value::<u32>(), None);
}
