//! Files in the user's message that are saved as artifacts.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{Blob, CallContext, Callback, Content, Event, HookPoint, Part, PartData, Plugin, RunError};
use hatchery_engine::{Plugins, Runner};
use hatchery_models::scripted::Scripted;
use serde_json::{Value, json};

use crate::support::*;

fn picture() -> Part {
    let blob = Blob { mime_type: "image/png".into(), data: "png".into(), display_name: None };
    PartData::InlineData(blob).into()
}

/// Returns the stored event of a message with a text and a picture.
async fn stored(app: &Harness) -> Arc<Event> {
    let message = Content::new("user", vec![Part::text("look"), picture()]);
    app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap();
    app.session().await.events[0].clone()
}

async fn saving(agent: hatchery_core::Agent) -> Harness {
    let mut app = Harness::new(agent).await;
    app.config.save_input_blobs_as_artifacts = true;
    app
}

#[tokio::test]
async fn a_file_is_saved_and_only_named_in_the_session() {
    let model = Arc::new(Scripted::sequence(["nice"]));
    let app = saving(llm_on("root", &model, |_| {})).await;
    let event = stored(&app).await;
    let name = format!("artifact_{}_1", event.invocation_id);
    let texts: Vec<_> = event.content.as_ref().unwrap().parts.iter().filter_map(Part::as_text).collect();
    assert_eq!(texts, ["look", &format!("Uploaded file: {name}. It has been saved to the artifacts")]);
    assert_eq!(json!(event.actions.artifact_delta), json!({ name.as_str(): 0 }));
    let key = app.session().await.key;
    let saved = app.runner.services().artifacts.load(&key, &name, None).await.unwrap();
    assert_eq!(saved, Some(picture()));
    assert_eq!(model.requests()[0].contents[0], *event.content.as_ref().unwrap());
}

#[tokio::test]
async fn a_file_in_an_answer_does_not_replace_the_file_in_the_first_message_of_the_run() {
    let orders = Arc::default();
    let mut app = saving(ordering_agent(&orders, Value::Null, &["arrived"])).await;
    app.resumable();
    let first = stored(&app).await;
    let call = app.session().await.events[1].function_calls().next().unwrap().id.clone().unwrap();
    let mut answer = tool_response(&call, "order", json!({"ok": true}));
    answer.parts.push(picture());
    assert_eq!(briefs(&app.send(answer).await), ["orders: arrived"]);
    let session = app.session().await;
    let last = session.events.iter().rfind(|event| event.author == "user" && event.content.is_some()).unwrap();
    assert_eq!(last.invocation_id, first.invocation_id);
    assert_eq!(json!(first.actions.artifact_delta), json!({ format!("artifact_{}_1", first.invocation_id): 0 }));
    assert_eq!(json!(last.actions.artifact_delta), json!({ format!("artifact_{}_1.1", first.invocation_id): 0 }));
}

#[tokio::test]
async fn by_default_files_stay_in_the_session() {
    let app = Harness::new(llm("root", Scripted::sequence(["nice"]))).await;
    assert_eq!(stored(&app).await.content.as_ref().unwrap().parts[1], picture());
}

/// Replaces the user's message, and records the message that agents get.
#[derive(Default)]
struct ReplacingPlugin(Option<Content>, Mutex<Vec<Content>>);

#[async_trait]
impl Callback for ReplacingPlugin {
    fn name(&self) -> &str {
        "replaces"
    }
    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        self.1.lock().unwrap().push(Content::clone(&cx.invocation.user_content()));
        Ok(None)
    }
}

#[async_trait]
impl Plugin for ReplacingPlugin {
    async fn on_user_message(&self, _: &CallContext, _: &Content) -> Result<Option<Content>, RunError> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn agents_still_find_the_file_in_the_message_of_the_user() {
    let callback = Arc::new(ReplacingPlugin::default());
    let mut agent = llm("root", Scripted::sequence(["nice"]));
    agent.callbacks.push(HookPoint::BeforeAgent, callback.clone());
    stored(&saving(agent).await).await;
    assert_eq!(callback.1.lock().unwrap()[0].parts[1], picture());
}

#[tokio::test]
async fn the_message_that_a_plugin_replaced_is_the_one_that_is_saved() {
    let plugin = ReplacingPlugin(Some(Content::new("user", vec![picture()])), Mutex::default());
    let app = saving(llm("root", Scripted::sequence(["nice"]))).await;
    let plugins = Plugins::new(vec![Arc::new(plugin)]).unwrap();
    let app = Harness { runner: Runner::with_plugins(app.runner.services().clone(), plugins), ..app };
    let event = stored(&app).await;
    assert_eq!(json!(event.actions.artifact_delta), json!({ format!("artifact_{}_0", event.invocation_id): 0 }));
}
