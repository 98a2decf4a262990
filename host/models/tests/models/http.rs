use std::time::Duration;

use futures::StreamExt;
use hatchery_core::{ModelErrorKind, ModelResolver, StreamingMode};
use hatchery_models::{ModelProviders, Settings};
use serde_json::json;
use tokio::sync::oneshot;

use crate::support::{Answer, End, Fake, event, refusal, says, stream_of, texts, whole};

fn hello() -> Answer {
    Answer::json(json!({ "candidates": [{ "content": { "parts": [{ "text": "hello" }] } }] }))
}

fn busy() -> Answer {
    Answer::json(json!({ "error": { "code": 429, "message": "slow down" } })).status(429).header("retry-after", "0")
}

fn piece(text: &str) -> String {
    event(json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": text }] } }] }))
}

#[tokio::test]
async fn too_many_requests_are_tried_again_and_succeed() {
    let fake = Fake::start([busy(), busy(), hello()]).await;
    let response = whole(fake.gemini().as_ref(), says("hi")).await.unwrap();
    assert_eq!(texts(&[response]), ["hello"]);
    let asked = fake.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|again| again.body == asked[0].body));
}

#[tokio::test]
async fn after_three_tries_the_error_is_the_last_answers() {
    let fake = Fake::start([busy(), busy(), busy(), hello()]).await;
    let error = refusal(fake.gemini().as_ref(), says("hi"), StreamingMode::Off).await;
    assert_eq!(
        (error.kind, error.status, error.retry_after),
        (ModelErrorKind::RateLimited, Some(429), Some(Duration::ZERO))
    );
    assert_eq!(error.message, "Gemini answered HTTP 429: slow down");
    assert_eq!(fake.asked().len(), 3);
}

#[tokio::test]
async fn a_wait_of_more_than_thirty_seconds_is_left_to_the_caller() {
    let fake = Fake::start([Answer::json("{}").status(429).header("retry-after", "31"), hello()]).await;
    let error = refusal(fake.gemini().as_ref(), says("hi"), StreamingMode::Off).await;
    assert_eq!((error.kind, error.retry_after), (ModelErrorKind::RateLimited, Some(Duration::from_secs(31))));
    assert_eq!(fake.asked().len(), 1);
}

#[tokio::test]
async fn a_server_error_is_tried_again_without_being_asked_to() {
    let fake = Fake::start([Answer::json("oops").status(500), hello()]).await;
    let response = whole(fake.gemini().as_ref(), says("hi")).await.unwrap();
    assert_eq!(texts(&[response]), ["hello"]);
    assert_eq!(fake.asked().len(), 2);
}

#[tokio::test]
async fn what_the_request_causes_is_not_tried_again() {
    let cases = [
        (400, ModelErrorKind::BadRequest, "Gemini answered HTTP 400: no"),
        (401, ModelErrorKind::Auth, "Gemini answered HTTP 401: no (check the key in GOOGLE_API_KEY or GEMINI_API_KEY)"),
        (403, ModelErrorKind::Auth, "Gemini answered HTTP 403: no (check the key in GOOGLE_API_KEY or GEMINI_API_KEY)"),
        (
            404,
            ModelErrorKind::UnknownModel,
            "Gemini answered HTTP 404: no (check the model's name, and GOOGLE_GEMINI_BASE_URL if it is set)",
        ),
        (408, ModelErrorKind::Timeout, "Gemini answered HTTP 408: no"),
        (307, ModelErrorKind::BadResponse, "Gemini answered HTTP 307: no"),
    ];
    for (status, kind, message) in cases {
        let answer =
            Answer::json(json!({ "error": { "message": "no" } })).status(status).header("location", "/elsewhere");
        let fake = Fake::start([answer, hello()]).await;
        let error = refusal(fake.gemini().as_ref(), says("hi"), StreamingMode::On).await;
        assert_eq!((error.kind, error.status), (kind, Some(status)));
        assert_eq!(error.message, message);
        assert_eq!(fake.asked().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_network_error_that_names_the_host() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let settings = Settings { openai_base_url: Some(url.into()), ..Settings::default() };
    let model = ModelProviders::with_defaults(settings).model("gpt-5").unwrap();
    let error = refusal(model.as_ref(), says("hi"), StreamingMode::Off).await;
    assert_eq!((error.kind, error.status), (ModelErrorKind::Network, None));
    assert!(error.message.starts_with("cannot reach OpenAI at 127.0.0.1: "), "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_gives_what_came_and_then_a_network_error() {
    let fake = Fake::start([Answer::events([piece("one"), piece("two")]).ending(End::Broken), hello()]).await;
    let mut items = stream_of(fake.gemini().as_ref(), says("hi")).await;
    let error = items.pop().unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Network);
    assert!(error.message.starts_with("the connection to Gemini broke: "), "{error}");
    let before: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    assert_eq!(texts(&before), ["one", "two"]);
    assert_eq!(fake.asked().len(), 1);
}

#[tokio::test]
async fn a_whole_answer_that_breaks_off_is_a_network_error() {
    let fake = Fake::start([Answer { end: End::Broken, ..hello() }]).await;
    assert_eq!(whole(fake.gemini().as_ref(), says("hi")).await.unwrap_err().kind, ModelErrorKind::Network);
}

#[tokio::test]
async fn dropping_the_stream_ends_the_request_at_the_server() {
    let (held, gone) = oneshot::channel();
    let fake = Fake::start([Answer::events([piece("one")]).ending(End::Never(held))]).await;
    let mut stream = fake.gemini().generate(says("hi"), StreamingMode::On).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    let noticed = tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the server never noticed");
    assert!(noticed.is_err(), "the sender is dropped, not used");
}

#[tokio::test]
async fn an_answer_that_is_no_event_stream_is_refused() {
    let fake = Fake::start([hello()]).await;
    let error = refusal(fake.gemini().as_ref(), says("hi"), StreamingMode::On).await;
    assert_eq!(error.kind, ModelErrorKind::BadResponse);
    assert_eq!(
        error.message,
        "Gemini sent an answer that cannot be read: an event stream was asked for, and application/json came"
    );
}

#[tokio::test]
async fn a_chunk_that_is_no_json_is_a_bad_response_behind_what_came() {
    let fake =
        Fake::start([Answer::events([piece("one"), "data: {\"candidates\": [\n\n".to_owned(), piece("two")])]).await;
    let items = stream_of(fake.gemini().as_ref(), says("hi")).await;
    assert_eq!(items.len(), 2);
    assert!(items[0].is_ok());
    let error = items[1].as_ref().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadResponse);
    assert!(error.message.starts_with("Gemini sent an answer that cannot be read: EOF while parsing"), "{error}");
}

#[tokio::test]
async fn a_chunk_that_is_not_utf_8_is_a_bad_response() {
    let fake = Fake::start([Answer::events([&b"data: \xff\xfe\n\n"[..]])]).await;
    let items = stream_of(fake.gemini().as_ref(), says("hi")).await;
    assert_eq!(items[0].as_ref().unwrap_err().kind, ModelErrorKind::BadResponse);
}

#[tokio::test]
async fn an_event_of_more_than_thirty_two_mebibytes_is_a_bad_response() {
    let mebibyte = vec![b'x'; 1024 * 1024];
    let chunks = std::iter::once(b"data: ".to_vec()).chain(std::iter::repeat_n(mebibyte, 34));
    let fake = Fake::start([Answer::events(chunks)]).await;
    let items = stream_of(fake.gemini().as_ref(), says("hi")).await;
    let error = items[0].as_ref().unwrap_err();
    assert_eq!(error.message, "Gemini sent an answer that cannot be read: one event is longer than 33554432 bytes");
}

#[tokio::test]
async fn the_key_is_never_in_an_error_even_if_the_server_repeats_it() {
    let fake = Fake::start([Answer::json(json!({ "error": "openai-key is wrong" })).status(401)]).await;
    let error = refusal(fake.openai().as_ref(), says("hi"), StreamingMode::Off).await;
    assert_eq!(error.message, "OpenAI answered HTTP 401: [key] is wrong (check the key in OPENAI_API_KEY)");
}

#[tokio::test]
async fn a_whole_answer_of_more_than_sixty_four_mebibytes_is_a_bad_response() {
    let answer = Answer { chunks: std::iter::repeat_n(vec![b' '; 1024 * 1024].into(), 65).collect(), ..hello() };
    let fake = Fake::start([answer]).await;
    let error = whole(fake.gemini().as_ref(), says("hi")).await.unwrap_err();
    assert_eq!(error.message, "Gemini sent an answer that cannot be read: it is longer than 67108864 bytes");
}

#[tokio::test]
async fn a_stream_that_is_refused_with_a_list_shows_the_first_message() {
    let fake = Fake::start([Answer::json(json!([{ "error": { "message": "no" } }])).status(400)]).await;
    let error = refusal(fake.gemini().as_ref(), says("hi"), StreamingMode::On).await;
    assert_eq!(error.message, "Gemini answered HTTP 400: no");
}
