//! Tokens of users: requested in the span of a call, kept, and refreshed.

use std::net::IpAddr;

use hatchery_egress::Egress;
use tracing::{Instrument, Span};

use super::*;

#[tokio::test]
async fn a_token_is_kept_for_later_calls_and_refreshed_before_it_expires() {
    let (login, server) = Login::start().await;
    let (app, _api) = app(&server, oauth2(&server)).await;
    let (id, args) = request(&app.run("orders?").await);
    app.send(logged_in(&id, &args, "code=good")).await;
    login.lifetime.store(30, Ordering::SeqCst);
    // Its token is refused, so it is refreshed.
    login.valid.store(1, Ordering::SeqCst);
    let events = app.run("again?").await;
    assert!(no_request(&events));
    assert_eq!(tool_result(&events), json!({"orders": [1, 2]}));
    // The new one is valid for less than a minute, so it is refreshed at once.
    let events = app.run("and again?").await;
    assert!(no_request(&events));
    assert_eq!(tool_result(&events), json!({"orders": [1, 2]}));
    let requests = token_requests(&server);
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert!(requests[1].contains("grant_type=refresh_token&refresh_token=refresh-0"), "{requests:?}");
    assert!(requests[2].contains("refresh_token=refresh-1"), "{requests:?}");
}

#[tokio::test]
async fn tokens_are_kept_if_the_run_is_cancelled_while_they_are_requested() {
    let (login, server) = Login::start().await;
    let (app, _api) = app(&server, oauth2(&server)).await;
    let (id, args) = request(&app.run("orders?").await);
    let answering = app.request(logged_in(&id, &args, "code=good"));
    let cancel = answering.cancel.clone();
    *login.meanwhile.lock().unwrap() = Some(Box::new(move || cancel.cancel()));
    let mut run = app.runner.run(app.app.clone(), answering).await.unwrap();
    while run.next().await.is_some() {}
    let events = app.run("again?").await;
    assert!(no_request(&events));
    assert_eq!(tool_result(&events), json!({"orders": [1, 2]}));
    assert_eq!(token_requests(&server).len(), 1, "a server accepts a code once");
}

/// A policy that remembers in which tracing spans the URL of the token server is checked.
struct ObservingEgress {
    policy: Only,
    spans: Arc<Mutex<Vec<Option<&'static str>>>>,
}

impl Egress for ObservingEgress {
    fn check_url(&self, url: &Url) -> Result<(), String> {
        if url.path() == "/token" {
            self.spans.lock().unwrap().push(Span::current().metadata().map(|span| span.name()));
        }
        self.policy.check_url(url)
    }

    fn check_address(&self, url: &Url, address: IpAddr) -> Result<(), String> {
        self.policy.check_address(url, address)
    }
}

#[tokio::test]
async fn tokens_are_requested_in_the_tracing_span_of_the_call() {
    let _log = tracing::subscriber::set_default(tracing_subscriber::registry());
    let (_, server) = Login::start().await;
    let spans = Arc::default();
    let mut api = server.api(&operation(json!({})));
    api.config.credentials = oauth2(&server);
    api.config.egress = Arc::new(ObservingEgress { policy: Only(server.address.clone()), spans: Arc::clone(&spans) });
    let app = Harness::new(clerk(&api, asking_model())).await;
    let (id, args) = request(&app.run("orders?").await);
    spans.lock().unwrap().clear();
    let events = app.send(logged_in(&id, &args, "code=good")).instrument(tracing::info_span!("turn")).await;
    assert_eq!(tool_result(&events), json!({"orders": [1, 2]}));
    let spans = spans.lock().unwrap();
    assert!(!spans.is_empty() && spans.iter().all(|span| *span == Some("turn")), "{spans:?}");
}

#[tokio::test]
async fn tokens_that_another_host_has_got_by_the_same_refresh_token_are_used() {
    let (login, server) = Login::start().await;
    // The next call refreshes its token.
    login.lifetime.store(30, Ordering::SeqCst);
    let (app, _api) = app(&server, oauth2(&server)).await;
    let (id, args) = request(&app.run("orders?").await);
    app.send(logged_in(&id, &args, "code=good")).await;
    let key = args["authConfig"]["credentialKey"].as_str().unwrap();
    let stored = CredentialId::for_user(&app.session().await.key, key);
    let credentials = app.runner.services().credentials.clone();
    let mut refreshed = credentials.load(&stored).await.unwrap().unwrap();
    refreshed["credential"]["oauth2"]["accessToken"] = "access-7".into();
    refreshed["credential"]["oauth2"]["expiresAt"] = 4_000_000_000_u64.into();
    let (service, place, new) = (credentials.clone(), stored.clone(), refreshed.clone());
    let save = move || futures::executor::block_on(service.save(&place, &new)).unwrap();
    *login.meanwhile.lock().unwrap() = Some(Box::new(save));
    login.failures.lock().unwrap().push_back((StatusCode::BAD_REQUEST, "invalid_grant"));
    let events = app.run("again?").await;
    assert!(no_request(&events));
    assert_eq!(tool_result(&events), json!({"orders": [1, 2]}));
    assert_eq!(credentials.load(&stored).await.unwrap(), Some(refreshed));
}

#[tokio::test]
async fn a_token_server_that_refuses_the_host_or_is_busy_takes_nothing_from_the_user() {
    let (login, server) = Login::start().await;
    // Each call refreshes its token.
    login.lifetime.store(30, Ordering::SeqCst);
    let (app, _api) = app(&server, oauth2(&server)).await;
    let (id, args) = request(&app.run("orders?").await);
    let failures = [
        (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
        (StatusCode::UNAUTHORIZED, "invalid_client"),
        (StatusCode::TOO_MANY_REQUESTS, "access_denied"),
    ];
    let shown = "the call of `op` of the API `shop` failed: the host gets no credentials for it; the log of the host holds the \
                 cause";
    login.failures.lock().unwrap().extend(failures);
    // The code is kept too, so that the login need not be repeated.
    assert_eq!(tool_result(&app.send(logged_in(&id, &args, "code=good")).await)["error"], shown);
    for _ in &failures[1..] {
        let events = app.run("again?").await;
        assert!(no_request(&events));
        assert_eq!(tool_result(&events)["error"], shown);
    }
    assert_eq!(tool_result(&app.run("again?").await), json!({"orders": [1, 2]}));

    login.failures.lock().unwrap().extend(failures);
    for _ in &failures {
        let events = app.run("again?").await;
        assert!(no_request(&events));
        assert_eq!(tool_result(&events)["error"], shown);
    }
    assert_eq!(tool_result(&app.run("again?").await), json!({"orders": [1, 2]}));
    login.failures.lock().unwrap().push_back((StatusCode::BAD_REQUEST, "invalid_grant"));
    request(&app.run("again?").await);
}
