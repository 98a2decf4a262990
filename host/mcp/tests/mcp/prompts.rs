//! Prompts and files of the settings.
#![expect(deprecated, reason = "revision 2026-07-28 deprecates single subscriptions")]

use std::collections::BTreeMap;
use std::path::Path;

#[cfg(unix)]
use hatchery_files::FileStamp;
use hatchery_mcp::{ExposedMessage, ExposedPrompt, FileResource, PromptContent, PromptParameter};
use rmcp::RoleClient;
use rmcp::model::{
    ArgumentInfo, CompleteRequestParams, GetPromptRequestParams, GetPromptResult, ReadResourceRequestParams, Reference,
    SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::{Peer, ServiceError};
use serde_json::{Value, json};

use crate::input::{Person, PersonClient, clients};
use crate::server::Host;

fn resource(uri: &str, file: &Path) -> FileResource {
    let root = file.parent().unwrap().to_owned();
    FileResource { uri: uri.into(), root, file: file.to_owned(), description: "A file.".into(), mime_type: None }
}

/// Returns a host with a prompt, and the files of a folder.
fn host(folder: &Path) -> Host {
    std::fs::write(folder.join("tone.md"), "Be brief.").unwrap();
    std::fs::write(folder.join("dot.png"), "hello").unwrap();
    std::fs::write(folder.join("trains.md"), "Trains run.").unwrap();
    std::fs::write(folder.join(".hidden.md"), "secret").unwrap();
    let topic = PromptParameter {
        name: "topic".into(),
        description: "What it is about.".into(),
        is_required: true,
        values: vec!["trains".into(), "trams".into(), "boats".into()],
    };
    let length = PromptParameter { name: "length".into(), ..PromptParameter::default() };
    let message = |is_assistant, content| ExposedMessage { is_assistant, content };
    let prompt = ExposedPrompt {
        description: "Writes a report.".into(),
        arguments: vec![topic, length],
        messages: vec![
            message(false, PromptContent::Text("Report about {topic}{length}. Keep {this}.".into())),
            message(true, PromptContent::Resource("docs://{topic}".into())),
            message(false, PromptContent::Resource("docs://dot".into())),
        ],
    };
    let mut host = Host::new(vec![]);
    host.exposure.prompts = BTreeMap::from([("report".to_owned(), prompt)]);
    host.exposure.resources =
        vec![resource("docs://dot", &folder.join("dot.png")), resource("docs://{page}", &folder.join("{page}.md"))];
    host
}

async fn get(client: &PersonClient, args: Value) -> Result<GetPromptResult, ServiceError> {
    let args = args.as_object().unwrap().clone();
    client.get_prompt(GetPromptRequestParams::new("report").with_arguments(args)).await
}

fn refusal(error: ServiceError) -> (i32, String) {
    let ServiceError::McpError(error) = error else { panic!("{error}") };
    (error.code.0, error.message.to_string())
}

#[tokio::test]
async fn a_prompt_has_its_arguments_and_resources() {
    let folder = tempfile::tempdir().unwrap();
    for client in clients(&host(folder.path()), &Person::absent()).await {
        let prompts = client.list_all_prompts().await.unwrap();
        let arguments = json!(prompts[0].arguments);
        assert_eq!((prompts[0].name.as_str(), prompts[0].description.as_deref()), ("report", Some("Writes a report.")));
        assert_eq!((&arguments[0]["name"], &arguments[0]["required"]), (&json!("topic"), &json!(true)));
        let result = get(&client, json!({"topic": "trains"})).await.unwrap();
        let messages = json!(result.messages);
        assert_eq!(messages[0]["content"]["text"], "Report about trains. Keep {this}.");
        assert_eq!(messages[1]["role"], "assistant");
        let embedded = json!({"uri": "docs://trains", "mimeType": "text/markdown", "text": "Trains run."});
        assert_eq!(messages[1]["content"]["resource"], embedded);
        assert_eq!(messages[2]["content"], json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}));
        let long = get(&client, json!({"topic": "trains", "length": ", one page"})).await.unwrap();
        assert_eq!(json!(long.messages)[0]["content"]["text"], "Report about trains, one page. Keep {this}.");
    }
}

#[tokio::test]
async fn the_person_at_a_client_is_asked_for_arguments_that_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let person = Person::accepting(json!({"topic": "trains"}));
    for client in clients(&host(folder.path()), &person).await {
        let result = get(&client, json!({})).await.unwrap();
        assert_eq!(json!(result.messages)[0]["content"]["text"], "Report about trains. Keep {this}.");
        let question = &person.questions()[0];
        assert_eq!(question["message"], "The prompt report needs these arguments.");
        assert_eq!(question["requestedSchema"]["required"], json!(["topic"]));
    }
}

#[tokio::test]
async fn invalid_requests_for_prompts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for client in clients(&host(folder.path()), &Person::absent()).await {
        let missing = refusal(get(&client, json!({})).await.unwrap_err());
        assert_eq!(missing, (-32602, "the prompt `report` needs the argument `topic`".into()));
        let number = refusal(get(&client, json!({"topic": 5})).await.unwrap_err());
        assert_eq!(number, (-32602, "the argument `topic` must be a string".into()));
        let unknown = client.get_prompt(GetPromptRequestParams::new("poem")).await.unwrap_err();
        assert_eq!(refusal(unknown), (-32602, "Unknown prompt: poem".into()));
        let elsewhere = refusal(get(&client, json!({"topic": "../trains"})).await.unwrap_err());
        assert_eq!(elsewhere.1, "Resource not found");
    }
}

async fn complete(client: &Peer<RoleClient>, reference: Reference, name: &str, value: &str) -> Vec<String> {
    let params = CompleteRequestParams::new(reference, ArgumentInfo::new(name, value));
    client.complete(params).await.unwrap().completion.values
}

#[tokio::test]
async fn arguments_and_names_of_files_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    for client in clients(&host(folder.path()), &Person::absent()).await {
        assert_eq!(complete(&client, Reference::for_prompt("report"), "topic", "tra").await, ["trains", "trams"]);
        let pages = Reference::for_resource("docs://{page}");
        assert_eq!(complete(&client, pages.clone(), "page", "").await, ["tone", "trains"]);
        assert_eq!(complete(&client, pages, "page", "tr").await, ["trains"]);
        let params = CompleteRequestParams::new(Reference::for_prompt("report"), ArgumentInfo::new("size", ""));
        let unknown = refusal(client.complete(params).await.unwrap_err());
        assert_eq!(unknown, (-32602, "there is no argument `size` of a prompt `report`".into()));
    }
}

#[tokio::test]
async fn files_are_resources_at_the_uris_of_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("secret.md"), "secret").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(elsewhere.path().join("secret.md"), folder.path().join("link.md")).unwrap();
    for client in clients(&host(folder.path()), &Person::absent()).await {
        let listed = client.list_all_resources().await.unwrap();
        assert_eq!((listed.len(), listed[0].uri.as_str(), listed[0].name.as_str()), (1, "docs://dot", "dot.png"));
        let templates = client.list_all_resource_templates().await.unwrap();
        let templates: Vec<_> = templates.iter().map(|template| template.uri_template.as_str()).collect();
        assert_eq!(templates, ["artifact:///{app}/{session}/{name}", "docs://{page}"]);
        let read = |uri: &str| client.read_resource(ReadResourceRequestParams::new(uri));
        assert_eq!(json!(read("docs://tone").await.unwrap().contents)[0]["text"], "Be brief.");
        for missing in ["docs://boats", "docs://.hidden", "docs://..%2Ftone", "docs://link", "other://tone"] {
            assert_eq!(refusal(read(missing).await.unwrap_err()).1, "Resource not found", "{missing}");
        }
        std::fs::File::create(folder.path().join("large.md")).unwrap().set_len((16 << 20) + 1).unwrap();
        let large = refusal(read("docs://large").await.unwrap_err());
        assert_eq!(large, (-32603, "the file cannot be read; the server's log holds the cause".into()));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_of_folders_lead_neither_out_of_the_root_nor_into_hidden_folders() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let hidden = folder.path().join(".hidden");
    let inside = folder.path().join("inside");
    for (target, link) in [(elsewhere.path(), "out"), (&hidden, "dot"), (&inside, "in")] {
        std::fs::create_dir_all(target).unwrap();
        std::fs::write(target.join("page.md"), "A page.").unwrap();
        symlink(target, folder.path().join(link)).unwrap();
    }
    let mut host = host(folder.path());
    host.exposure.resources = ["out", "dot", "in"]
        .map(|name| {
            let file = folder.path().join(name).join("{page}.md");
            FileResource { root: folder.path().to_owned(), ..resource(&format!("{name}://{{page}}"), &file) }
        })
        .into();
    let client = host.client().await;
    let read = |uri: &'static str| client.read_resource(ReadResourceRequestParams::new(uri));
    assert_eq!(json!(read("in://page").await.unwrap().contents)[0]["text"], "A page.");
    for refused in ["out://page", "dot://page"] {
        assert_eq!(refusal(read(refused).await.unwrap_err()).1, "Resource not found", "{refused}");
    }
    let pages = async |uri: &str| complete(&client, Reference::for_resource(uri), "page", "").await;
    assert_eq!(pages("in://{page}").await, ["page"]);
    assert!(pages("out://{page}").await.is_empty());
    assert!(pages("dot://{page}").await.is_empty());
}

#[tokio::test]
async fn a_client_is_notified_when_a_file_that_it_watches_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    let client = host.client().await;
    client.subscribe(SubscribeRequestParams::new("docs://tone")).await.unwrap();
    client.subscribe(SubscribeRequestParams::new("docs://trains")).await.unwrap();
    client.unsubscribe(UnsubscribeRequestParams::new("docs://trains")).await.unwrap();
    std::fs::write(folder.path().join("trains.md"), "Trains are late.").unwrap();
    std::fs::write(folder.path().join("tone.md"), "Be verbose.").unwrap();
    client.service().updated.notified().await;
    assert_eq!(*client.service().updates.lock().unwrap(), ["docs://tone"]);
    let unknown = client.subscribe(SubscribeRequestParams::new("other://tone")).await.unwrap_err();
    assert_eq!(refusal(unknown), (-32002, "Resource not found".into()));
}

#[cfg(unix)]
#[tokio::test]
async fn a_watched_file_that_is_replaced_by_one_of_its_size_and_age_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let client = host(folder.path()).client().await;
    for uri in ["docs://tone", "docs://trains"] {
        client.subscribe(SubscribeRequestParams::new(uri)).await.unwrap();
    }
    let path = folder.path().join("tone.md");
    let (before, modified) = (FileStamp::read(&path), std::fs::metadata(&path).unwrap().modified().unwrap());
    // The clock of a file system may not have advanced yet.
    while FileStamp::read(&path) == before {
        std::fs::write(&path, "Be short.").unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }
    std::fs::write(folder.path().join("trains.md"), "Trains are late.").unwrap();
    let is_reported = |uri: &str| client.service().updates.lock().unwrap().iter().any(|it| it == uri);
    while !is_reported("docs://trains") {
        client.service().updated.notified().await;
    }
    assert!(is_reported("docs://tone"));
}

#[tokio::test]
async fn every_watched_file_that_has_changed_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let client = host(folder.path()).client().await;
    let uris = ["docs://tone", "docs://trains"];
    for uri in uris {
        client.subscribe(SubscribeRequestParams::new(uri)).await.unwrap();
    }
    std::fs::write(folder.path().join("tone.md"), "Be verbose.").unwrap();
    std::fs::remove_file(folder.path().join("trains.md")).unwrap();
    while client.service().updates.lock().unwrap().len() < uris.len() {
        client.service().updated.notified().await;
    }
    let mut updates = client.service().updates.lock().unwrap().clone();
    updates.sort_unstable();
    assert_eq!(updates, uris);
}
