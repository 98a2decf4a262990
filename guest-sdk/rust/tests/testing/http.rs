//! HTTP requests of code.

use std::time::Duration;

use hatchery_guest::prelude::*;
use hatchery_guest::testing::{Host, HttpResponse};

#[tool]
async fn order() -> Result<Value, ToolError> {
    let request = http::Request::post("https://shop.example/orders").header("Authorization", "mine");
    Ok(request.json(&json!({ "lamp": 1 })).send().await?.error_for_status()?.json().await?)
}

#[test]
fn a_request_is_answered_by_the_test() {
    let host = Host::new().http(|request| {
        assert_eq!(request.json(), Some(json!({ "lamp": 1 })));
        Ok(HttpResponse::json(json!({ "id": 7 })).status(201))
    });
    assert_eq!(host.call(order, ()), Ok(json!({ "id": 7 })));
    let sent = host.http_requests();
    assert_eq!((sent[0].method.as_str(), sent[0].url.as_str()), ("POST", "https://shop.example/orders"));
    assert_eq!(
        (sent[0].header("Authorization"), sent[0].header("content-type")),
        (Some("mine"), Some("application/json"))
    );
}

#[test]
fn a_redirect_is_followed_by_a_request_of_its_own() {
    let host = Host::new().http(|request| {
        Ok(match request.url.as_str() {
            "https://shop.example/orders" => HttpResponse::redirect("https://other.example/new"),
            _ => HttpResponse::text(format!("{:?}", request.header("authorization").is_some())),
        })
    });
    assert_eq!(host.call(order, ()), Ok(json!(false)));
    let sent: Vec<_> = host.http_requests().into_iter().map(|request| (request.method, request.url)).collect();
    let request = |method: &str, url: &str| (method.to_owned(), url.to_owned());
    assert_eq!(sent, [request("POST", "https://shop.example/orders"), request("GET", "https://other.example/new")]);
}

#[test]
fn a_status_or_a_refusal_is_an_error_of_the_code() {
    let host = Host::new().http(|_| Ok(HttpResponse::new(503)));
    let error = host.call::<Value>(order, ()).unwrap_err();
    assert_eq!(error, ToolError::recoverable("https://shop.example/orders answered with status 503"));
    let host = Host::new().http(|_| Err(Error::new("DENIED", "not granted")));
    assert_eq!(host.call::<Value>(order, ()), Err(ToolError::recoverable("not granted")));
}

#[test]
fn the_error_of_an_unexpected_request_says_what_to_add() {
    let error = Host::new().call::<Value>(order, ()).unwrap_err();
    let what = "add `.http(|request| Ok(HttpResponse::text(\"…\")))` to the test's host";
    assert_eq!(
        error,
        ToolError::recoverable(format!("there is no response for POST https://shop.example/orders; {what}"))
    );
}

/// Sends two requests at once, and waits before the third.
#[tool]
async fn three_pages() -> Result<Vec<String>, Error> {
    let page = async |name: &str| http::get(format!("https://example.com/{name}")).await?.text().await;
    let (one, two) = hatchery_guest::join(page("one"), page("two")).await;
    hatchery_guest::time::sleep(Duration::from_secs(60)).await;
    Ok([vec![one?, two?], hatchery_guest::try_join_all([page("three")]).await?].concat())
}

#[test]
fn requests_are_awaited_together_and_a_test_does_not_wait() {
    let host = Host::new().http(|request| Ok(HttpResponse::text(request.url.clone())));
    let pages = ["one", "two", "three"].map(|name| format!("https://example.com/{name}"));
    assert_eq!(host.call::<Vec<String>>(three_pages, ()), Ok(pages.to_vec()));
}
