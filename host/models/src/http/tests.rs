//! Idle and first-byte timeouts of streams, size limits of bodies, and redaction of keys.

use super::*;
use crate::service::{KeyRule, ServiceInfo, ServiceUrl};

fn origin() -> Arc<Origin> {
    Arc::new(Origin {
        model: "m".into(),
        service: &ServiceInfo {
            name: "Someone",
            provider: "someone",
            key_variables: &["KEY"],
            url_variable: "URL",
            url: ServiceUrl::Required { example: "https://someone.example" },
            key_rule: KeyRule::Required,
        },
        secrets: vec![Secret::from("s3cret")],
        credentials: None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_silent_for_five_minutes_ends_with_a_timeout() {
    let silent = stream::iter([Ok(Bytes::from_static(b"a"))]).chain(stream::pending());
    let items: Vec<_> = with_idle_timeout(Box::pin(silent), origin()).collect().await;
    assert_eq!(items[0].as_ref().unwrap(), "a");
    let error = items[1].as_ref().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert_eq!(error.message, "Someone sent nothing for 300 s while it was answering");
    assert_eq!(items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_pauses_below_five_minutes_may_take_longer_in_all() {
    let slow = stream::iter(0..5).then(|_| async {
        tokio::time::sleep(Duration::from_secs(299)).await;
        Ok(Bytes::from_static(b"a"))
    });
    assert_eq!(
        with_idle_timeout(Box::pin(slow), origin()).filter(|item| std::future::ready(item.is_ok())).count().await,
        5
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_begin_within_five_minutes_is_a_timeout() {
    let error = first_byte(std::future::pending::<()>(), FIRST_BYTE_TIMEOUT, &origin()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert_eq!(error.message, "Someone did not answer within 300 s");
    let just_in_time = tokio::time::sleep(FIRST_BYTE_TIMEOUT - Duration::from_secs(1));
    assert!(first_byte(just_in_time, FIRST_BYTE_TIMEOUT, &origin()).await.is_ok());
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit() {
    let chunks = || stream::iter([Ok(Bytes::from_static(b"abc")), Ok(Bytes::from_static(b"def"))]);
    let (body, end) = collect(chunks(), 6).await;
    assert!(body == "abcdef" && matches!(end, BodyEnd::Complete));
    let (body, end) = collect(chunks(), 5).await;
    assert!(body == "abcde" && matches!(end, BodyEnd::TooLong));
}

#[test]
fn no_error_shows_the_key() {
    let error = origin().status_error(400, br#"{"error":{"message":"bad key s3cret"}}"#, None);
    assert_eq!(error.message, "Someone answered HTTP 400: bad key [key]");
}

#[test]
fn an_error_body_that_is_no_json_is_shown_cut() {
    let error = origin().status_error(502, "x".repeat(2_000).as_bytes(), None);
    assert_eq!(error.message, format!("Someone answered HTTP 502: {}…", "x".repeat(500)));
}
