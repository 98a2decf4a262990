//! Connections that break or that the server leaves: they are continued if possible.

use super::*;

#[tokio::test]
async fn a_connection_that_the_server_leaves_is_continued_after_the_turn() {
    let handle = |handle: &str| json!({"sessionResumptionUpdate": {"newHandle": handle, "resumable": true}});
    let server = Server::start(vec![
        script(
            begin(json!({})),
            vec![
                Step::Send(handle("h1")),
                Step::Send(json!({"serverContent": {"outputTranscription": {"text": "Hel"}}})),
                Step::Send(json!({"goAway": {"timeLeft": "5s"}})),
                Step::Send(json!({"serverContent": {"outputTranscription": {"text": "lo"}}})),
                // While the model speaks, a handle may be missing.
                Step::Send(json!({"sessionResumptionUpdate": {"resumable": false}})),
                Step::Send(json!({"serverContent": {"turnComplete": true}})),
            ],
        ),
        script(
            begin(json!({"handle": "h1"})),
            vec![Step::Expect(text_frame("more")), Step::Send(handle("h2")), Step::Break],
        ),
        script(
            begin(json!({"handle": "h2"})),
            vec![
                Step::Send(json!({"serverContent": {"outputTranscription": {"text": "again"}}})),
                Step::Close(1000, ""),
            ],
        ),
        // Content has reset the number of attempts, so three more are allowed, and there is no content here.
        script(begin(json!({"handle": "h2"})), vec![Step::Send(handle("h3")), Step::Close(1011, "overloaded")]),
        script(begin(json!({"handle": "h3"})), vec![Step::Send(handle("h4")), Step::Break]),
        script(begin(json!({"handle": "h4"})), vec![Step::Send(handle("h5")), Step::Close(1011, "overloaded")]),
    ])
    .await;
    let connection = server.connect(impatient_request()).await.unwrap();
    assert_eq!(received(&*connection, 3).await, [output("Hel"), output("lo"), LiveResponse::TurnComplete]);
    connection.send(text_request("more")).await.unwrap();
    assert_eq!(received(&*connection, 1).await, [output("again")]);
    let error = receive(&*connection).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Server);
    assert_eq!(error.message, "Gemini has closed the connection: overloaded");
    assert_eq!(receive(&*connection).await, None);
    server.check().await;
}

#[tokio::test]
async fn what_was_said_is_not_lost_if_a_connection_cannot_be_continued() {
    let handle = json!({"sessionResumptionUpdate": {"newHandle": "h1", "resumable": true}});
    let turn = json!({"serverContent": {"outputTranscription": {"text": "one"}, "turnComplete": true}, "goAway": {}});
    let server = Server::start(vec![
        script(
            begin(json!({})),
            vec![
                Step::Send(handle),
                Step::Send(turn),
                Step::Expect(text_frame("still there?")),
                Step::Send(json!({
                    "serverContent": {"outputTranscription": {"text": "two"}, "turnComplete": true}
                })),
            ],
        ),
        vec![Step::Expect(setup(json!({"handle": "h1"}))), Step::Close(1011, "overloaded")],
    ])
    .await;
    let connection = server.connect(impatient_request()).await.unwrap();
    assert_eq!(received(&*connection, 2).await, [output("one"), LiveResponse::TurnComplete]);
    connection.send(text_request("still there?")).await.unwrap();
    assert_eq!(received(&*connection, 2).await, [output("two"), LiveResponse::TurnComplete]);
    server.check().await;
}

#[tokio::test]
async fn a_server_that_answers_no_pings_has_left() {
    let server = Server::start(vec![script(begin(json!({})), vec![Step::Hang])]).await;
    let connection = server.connect(empty_request()).await.unwrap();
    tokio::time::pause();
    let error = connection.receive().await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Network);
    assert_eq!(error.message, "the live connection to Gemini broke: it does not answer");
}
