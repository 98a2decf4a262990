//! What the Gemini API would refuse in a request.

use hatchery_core::{Content, LlmRequest, ModelResolver};
use hatchery_models::{ModelProviders, Service, Settings};
use serde_json::{Value, json};

use crate::support::{MockProvider, MockResponse, content, generate, request, user_request};

/// Returns the body of a request to the model of this name.
async fn body_for(name: &str, request: LlmRequest) -> Value {
    let provider =
        MockProvider::start([MockResponse::json(json!({ "candidates": [{ "finishReason": "STOP" }] }))]).await;
    let settings =
        Settings::default().with_base_url(Service::Gemini, provider.url.as_str()).with_key(Service::Gemini, "k");
    let model = ModelProviders::with_defaults(settings).model(name).unwrap();
    generate(model.as_ref(), request).await.unwrap();
    provider.requests().remove(0).body
}

#[tokio::test]
async fn a_call_without_a_signature_of_gemini_gets_a_stand_in_where_one_is_required() {
    let history = || {
        request([
            Content::user("hi"),
            content(json!({ "role": "model", "parts": [
                { "text": "hm", "thought": true, "thoughtSignature": "dGhpbmtpbmc6c2ln" },
                { "functionCall": { "name": "a", "args": {} } },
                { "functionCall": { "name": "b", "args": {} } },
            ] })),
            content(json!({ "role": "model", "parts": [
                { "functionCall": { "name": "c", "args": {} }, "thoughtSignature": "c2ln" },
            ] })),
            Content::user("and?"),
        ])
    };
    let signatures = |body: Value| {
        let parts = [&body["contents"][1]["parts"], &body["contents"][2]["parts"]];
        let parts = parts.into_iter().flat_map(|parts| parts.as_array().unwrap());
        parts.map(|part| part["thoughtSignature"].clone()).collect::<Vec<_>>()
    };
    let (none, own) = (Value::Null, json!("c2ln"));
    let stand_in = json!("skip_thought_signature_validator");
    let sent = signatures(body_for("gemini-3-pro-preview", history()).await);
    assert_eq!(sent, [none.clone(), stand_in, none.clone(), own.clone()]);
    let sent = signatures(body_for("gemini-2.5-flash", history()).await);
    assert_eq!(sent, [none.clone(), none.clone(), none, own]);
}

#[tokio::test]
async fn empty_texts_and_other_roles_are_not_sent() {
    let history = [
        content(json!({ "role": "tool", "parts": [{ "text": "" }, { "text": "hi" }] })),
        content(json!({ "role": "model", "parts": [
            { "text": "", "thought": true, "thoughtSignature": "dGhpbmtpbmc6c2ln" },
            { "text": "", "thoughtSignature": "c2ln" },
        ] })),
        content(json!({ "role": "model", "parts": [{ "text": "" }] })),
        Content::user("and?"),
    ];
    let expected = json!([
        { "role": "user", "parts": [{ "text": "hi" }] },
        { "role": "model", "parts": [{ "text": "", "thoughtSignature": "c2ln" }] },
        { "role": "user", "parts": [{ "text": "and?" }] },
    ]);
    assert_eq!(body_for("gemini-2.5-flash", request(history)).await["contents"], expected);
}

#[tokio::test]
async fn settings_that_the_api_refuses_are_not_sent() {
    let mut question = user_request("hi");
    question.config = serde_json::from_value(json!({
        "audioTimestamp": true, "routingConfig": {}, "modelSelectionConfig": {}, "labels": {},
        "enableEnhancedCivicAnswers": true,
        "toolConfig": { "functionCallingConfig": { "mode": "ANY" }, "retrievalConfig": { "languageCode": "de" } },
    }))
    .unwrap();
    // There are no functions to call.
    let body = body_for("gemini-2.5-flash", question.clone()).await;
    assert_eq!(body["toolConfig"], json!({ "retrievalConfig": { "languageCode": "de" } }));
    assert_eq!(body["generationConfig"], json!({ "enableEnhancedCivicAnswers": true }));
    question.config.extra.insert("toolConfig".into(), json!({ "functionCallingConfig": { "mode": "AUTO" } }));
    assert_eq!(body_for("gemini-2.5-flash", question).await.get("toolConfig"), None);
}
