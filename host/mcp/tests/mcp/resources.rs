//! Artifacts of a client's sessions as resources, with a real client of `rmcp`.
#![expect(deprecated, reason = "revision 2026-07-28 deprecates single subscriptions")]

use std::collections::HashMap;

use hatchery_core::{Agent, Blob, Part, PartData};
use hatchery_engine::build::custom;
use hatchery_test_support::map;
use rmcp::model::{
    ArgumentInfo, CallToolRequestParams, CompleteRequestParams, CompletionContext, ReadResourceRequestParams,
    Reference, ResourceContents, ResourceTemplateReference, ServerNotification, SubscribeRequestParams,
    SubscriptionFilter,
};
use rmcp::service::ServiceError;
use serde_json::json;

use crate::input::{Person, clients};
use crate::server::{Client, Host, call, connect};

/// Stores the message as a text, and an image.
fn scribe() -> Agent {
    let agent = custom("scribe", |cx| async move {
        let text = cx.call.invocation.user_content().text();
        let file = |mime_type: &str, data: String| -> Part {
            PartData::InlineData(Blob { mime_type: mime_type.into(), data: data.into(), display_name: None }).into()
        };
        cx.call.save_artifact("notes/a b.txt", &file("text/plain", text)).await?;
        cx.call.save_artifact("dot.png", &file("image/png", "hello".into())).await?;
        cx.say("stored").await?;
        Ok(())
    });
    agent.build().unwrap()
}

/// Lets the agent store files, and returns the session.
async fn store(client: &Client, message: &str) -> String {
    let result = call(client, "run_scribe", json!({ "message": message })).await.unwrap();
    result.structured_content.unwrap()["session"].as_str().unwrap().to_owned()
}

async fn read(client: &Client, uri: &str) -> Result<ResourceContents, ServiceError> {
    let result = client.read_resource(ReadResourceRequestParams::new(uri)).await?;
    Ok(result.contents.into_iter().next().unwrap())
}

async fn complete(client: &Client, name: &str, value: &str, known: &[(&str, &str)]) -> Vec<String> {
    let template = "artifact:///{app}/{session}/{name}";
    let reference = Reference::Resource(ResourceTemplateReference::new(template));
    let known: HashMap<_, _> = known.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let params = CompleteRequestParams::new(reference, ArgumentInfo::new(name, value));
    client.complete(params.with_context(CompletionContext::with_arguments(known))).await.unwrap().completion.values
}

#[tokio::test]
async fn artifacts_of_a_session_are_resources() {
    let client = Host::new(vec![scribe()]).client().await;
    assert_eq!(client.list_all_resources().await.unwrap(), []);
    let session = store(&client, "Remember the milk.").await;
    client.service().resources_changed.notified().await;
    let resources = client.list_all_resources().await.unwrap();
    let listed: Vec<_> = resources.iter().map(|resource| (resource.name.as_str(), resource.uri.clone())).collect();
    let uri = |name: &str| format!("artifact:///scribe/{session}/{name}");
    assert_eq!(listed, [("dot.png", uri("dot.png")), ("notes/a b.txt", uri("notes%2Fa%20b.txt"))]);
    let text = read(&client, &uri("notes%2Fa%20b.txt")).await.unwrap();
    let expected = ResourceContents::text("Remember the milk.", uri("notes%2Fa%20b.txt"));
    assert_eq!(text, expected);
    let expected = ResourceContents::blob("aGVsbG8=", uri("dot.png")).with_mime_type("image/png");
    assert_eq!(read(&client, &uri("dot.png")).await.unwrap(), expected);
}

#[tokio::test]
async fn files_of_an_answer_have_the_uris_of_their_resources() {
    let client = Host::new(vec![scribe()]).client().await;
    let result = call(&client, "run_scribe", json!({"message": "Remember the milk."})).await.unwrap();
    let embedded = result.content.iter().find_map(|block| block.as_resource()).unwrap();
    let uri = serde_json::to_value(&embedded.resource).unwrap()["uri"].as_str().unwrap().to_owned();
    assert_eq!(read(&client, &uri).await.unwrap(), embedded.resource);
}

#[tokio::test]
async fn a_file_of_more_than_16_mib_is_a_link_and_is_not_read() {
    let agent = custom("printer", |cx| async move {
        let blob = Blob { mime_type: "image/png".into(), data: vec![0; (16 << 20) + 1].into(), display_name: None };
        cx.call.save_artifact("poster.png", &PartData::InlineData(blob).into()).await?;
        cx.say("printed").await?;
        Ok(())
    });
    let client = Host::new(vec![agent.build().unwrap()]).client().await;
    let result = call(&client, "run_printer", json!({"message": "print"})).await.unwrap();
    let session = result.structured_content.as_ref().unwrap()["session"].as_str().unwrap();
    let uri = format!("artifact:///printer/{session}/poster.png");
    let content = serde_json::to_value(&result.content).unwrap();
    let link = content.as_array().unwrap().iter().find(|block| block["type"] == "resource_link").unwrap();
    assert_eq!((link["uri"].as_str(), link["name"].as_str()), (Some(uri.as_str()), Some("poster.png")));
    let ServiceError::McpError(error) = read(&client, &uri).await.unwrap_err() else { panic!("no answer") };
    assert_eq!(
        (error.code.0, &*error.message),
        (
            -32600,
            "the artifact `poster.png` has 16777217 bytes, and at most 16777216 can be read into memory here; read it as a \
             stream, or store it in smaller files"
        )
    );
}

#[tokio::test]
async fn a_resource_that_does_not_exist_or_belongs_to_a_hidden_app_is_not_found() {
    let host = Host::new(vec![scribe()]);
    let client = host.client().await;
    let session = store(&client, "x").await;
    let hidden = connect(host.service(&[], &["*"])).await;
    assert_eq!(hidden.list_all_resources().await.unwrap(), []);
    let uri = format!("artifact:///scribe/{session}/dot.png");
    for (client, uri) in
        [(&hidden, uri.as_str()), (&client, "artifact:///scribe/other/dot.png"), (&client, "file:///etc/passwd")]
    {
        let error = read(client, uri).await.unwrap_err();
        let ServiceError::McpError(error) = error else { panic!("{error}") };
        assert_eq!((error.code.0, error.data), (-32002, Some(json!({ "uri": uri }))));
    }
}

#[tokio::test]
async fn the_parts_of_the_template_can_be_completed() {
    let client = Host::new(vec![scribe()]).client().await;
    let session = store(&client, "x").await;
    let templates = client.list_all_resource_templates().await.unwrap();
    assert_eq!(templates.len(), 1);
    assert_eq!(templates[0].uri_template, "artifact:///{app}/{session}/{name}");
    assert_eq!(complete(&client, "app", "sc", &[]).await, ["scribe"]);
    assert_eq!(complete(&client, "app", "x", &[]).await, [""; 0]);
    assert_eq!(complete(&client, "session", "", &[("app", "scribe")]).await, std::slice::from_ref(&session));
    let known = [("app", "scribe"), ("session", session.as_str())];
    assert_eq!(complete(&client, "name", "notes", &known).await, ["notes/a b.txt"]);
    assert_eq!(complete(&client, "name", "", &[("app", "bank"), ("session", &session)]).await, [""; 0]);
    let other = CompleteRequestParams::new(Reference::for_resource("docs://{page}"), ArgumentInfo::new("page", ""));
    let error = client.complete(other).await.unwrap_err().to_string();
    assert!(error.contains("there is no template `docs://{page}`; templates are listed"), "{error}");
}

#[tokio::test]
async fn a_client_is_notified_when_a_run_stores_an_artifact_that_it_watches() {
    let client = Host::new(vec![scribe()]).client().await;
    let session = store(&client, "x").await;
    let uri = format!("artifact:///scribe/{session}/dot.png");
    client.subscribe(SubscribeRequestParams::new(&uri)).await.unwrap();
    let again = json!({"message": "y", "session": session});
    call(&client, "run_scribe", again.clone()).await.unwrap();
    client.service().updated.notified().await;
    assert_eq!(*client.service().updates.lock().unwrap(), [uri.as_str()]);
    let hidden = client.subscribe(SubscribeRequestParams::new("artifact:///other/s/dot.png")).await.unwrap_err();
    assert!(hidden.to_string().contains("Resource not found"), "{hidden}");
}

/// Stores as many texts as the message says, with one event.
fn hoarder() -> Agent {
    let agent = custom("hoarder", |cx| async move {
        let count: usize = cx.call.invocation.user_content().text().parse().unwrap();
        for number in 0..count {
            cx.call.save_artifact(&format!("{number:03}"), &Part::text("x")).await?;
        }
        cx.say("stored").await?;
        Ok(())
    });
    agent.build().unwrap()
}

#[tokio::test]
async fn a_client_that_misses_changes_is_notified_of_all_artifacts_that_it_watches() {
    let client = Host::new(vec![hoarder()]).client().await;
    let stored = call(&client, "run_hoarder", json!({"message": "1"})).await.unwrap();
    let session = stored.structured_content.unwrap()["session"].clone();
    let uri = format!("artifact:///hoarder/{}/000", session.as_str().unwrap());
    client.subscribe(SubscribeRequestParams::new(&uri)).await.unwrap();
    // The first of more changes than are kept for a client.
    call(&client, "run_hoarder", json!({"message": "300", "session": session})).await.unwrap();
    client.service().updated.notified().await;
    assert_eq!(*client.service().updates.lock().unwrap(), [uri]);
}

#[tokio::test]
async fn a_client_watches_at_most_256_resources() {
    let client = Host::new(vec![scribe()]).client().await;
    let watch = |index: usize| client.subscribe(SubscribeRequestParams::new(format!("artifact:///scribe/s/{index}")));
    for index in 0..256 {
        watch(index).await.unwrap();
    }
    watch(0).await.unwrap();
    let refused = watch(256).await.unwrap_err().to_string();
    assert!(refused.contains("a client can watch at most 256 resources"), "{refused}");
}

#[tokio::test]
async fn subscriptions_of_revision_2026_07_28_are_streams() {
    let host = Host::new(vec![scribe()]);
    let [_, client] = clients(&host, &Person::absent()).await;
    let session = {
        let params = CallToolRequestParams::new("run_scribe").with_arguments(map(json!({"message": "x"})));
        client.call_tool(params).await.unwrap().structured_content.unwrap()["session"].clone()
    };
    let uri = format!("artifact:///scribe/{}/dot.png", session.as_str().unwrap());
    let filter = SubscriptionFilter::builder().resources_list_changed().resource_subscription(&uri).build();
    let mut subscription = client.listen(filter).await.unwrap();
    let params = CallToolRequestParams::new("run_scribe");
    let args = map(json!({"message": "y", "session": session}));
    client.call_tool(params.with_arguments(args)).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 2 {
        seen.insert(match subscription.next().await.unwrap().unwrap() {
            ServerNotification::ResourceUpdatedNotification(updated) => updated.params.uri,
            ServerNotification::ResourceListChangedNotification(_) => "list".to_owned(),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, [uri, "list".to_owned()].into());
}
