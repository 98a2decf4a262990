//! Requests to providers over HTTP: one client, bounded retries, limits on waiting and on sizes.
//!
//! Only what happens before the first byte of an answer is tried again. Redirects are not followed, because a key in a header must not
//! go to another host.

use std::error::Error;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use backon::{ExponentialBuilder, Retryable};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream, StreamExt};
use hatchery_core::{ModelError, ModelErrorKind};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};

use crate::failure::Origin;
use crate::{BaseUrl, Secret};

const CONNECT: Duration = Duration::from_secs(10);
/// How long a model may think before its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(300);
/// How long nothing may come once bytes flow.
const IDLE: Duration = Duration::from_secs(60);
const TRIES: usize = 3;
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// A provider that asks for a longer wait gets no second try: the caller is told how long it is.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The most bytes of an answer that comes whole.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The most bytes of an error body that are read.
const MOST_ERROR_BYTES: usize = 64 * 1024;

/// The client that all providers share, made when it is first needed.
#[derive(Clone, Default)]
pub(crate) struct Http(Arc<OnceLock<Client>>);

impl Http {
    /// The client, for a provider that is about to use it.
    pub(crate) fn client(&self, origin: &Origin) -> Result<Client, ModelError> {
        if let Some(client) = self.0.get() {
            return Ok(client.clone());
        }
        // Whoever was first in this process has chosen the provider, and any serves.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("hatchery/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| origin.error(ModelErrorKind::Network, format!("cannot set up HTTP: {}", chain(&error))))?;
        Ok(self.0.get_or_init(|| client).clone())
    }
}

/// Where requests go, and with which headers.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) client: Client,
    pub(crate) headers: HeaderMap,
    pub(crate) origin: Arc<Origin>,
}

impl Endpoint {
    /// Posts a JSON body. The response has a success status, and none of its body is read.
    pub(crate) async fn post(&self, url: &Url, body: Bytes) -> Result<Response, ModelError> {
        let send = || self.send(url, body.clone());
        let waits = ExponentialBuilder::new().with_min_delay(FIRST_WAIT).with_max_times(TRIES - 1).with_jitter();
        send.retry(waits)
            .when(is_worth_another_try)
            .adjust(|error: &ModelError, wait| match (wait, error.retry_after) {
                (Some(_), Some(asked)) => (asked <= LONGEST_WAIT).then_some(asked),
                (wait, _) => wait,
            })
            .notify(|error, wait| tracing::debug!(%error, ?wait, "trying the model again"))
            .await
    }

    async fn send(&self, url: &Url, body: Bytes) -> Result<Response, ModelError> {
        let origin = &self.origin;
        let request = self
            .client
            .post(url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body)
            .send();
        let response = first_byte(request, origin).await?.map_err(|error| {
            let host = url.host_str().unwrap_or_default();
            let message = format!("cannot reach {} at {host}: {}", origin.provider, chain(&error.without_url()));
            origin.error(ModelErrorKind::Network, message)
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        let (body, _) = collect(flow(response, origin.clone()), MOST_ERROR_BYTES).await;
        Err(origin.refusal(status, &body, retry_after))
    }

    /// The body of an answer that comes whole.
    pub(crate) async fn whole(&self, response: Response) -> Result<Bytes, ModelError> {
        match collect(flow(response, self.origin.clone()), MOST_BYTES).await {
            (body, Collected::All) => Ok(body),
            (_, Collected::TooMuch) => Err(self.origin.bad_response(format!("it is longer than {MOST_BYTES} bytes"))),
            (_, Collected::Broken(error)) => Err(error),
        }
    }

    /// The bytes of an answer that comes as an event stream.
    pub(crate) fn event_stream(
        &self,
        response: Response,
    ) -> Result<impl Stream<Item = Result<Bytes, ModelError>> + Send + use<>, ModelError> {
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !media_type.is_empty() && !media_type.starts_with("text/event-stream") {
            return Err(self.origin.bad_response(format!("an event stream was asked for, and {media_type} came")));
        }
        Ok(flow(response, self.origin.clone()))
    }
}

/// The header that carries a key, marked so that nothing logs it.
pub(crate) fn key_header(prefix: &str, key: &Secret, origin: &Origin) -> Result<HeaderValue, ModelError> {
    let mut value = HeaderValue::try_from(format!("{prefix}{}", key.expose())).map_err(|_| {
        let message = format!("the key in {} has characters that no key has", origin.key_variable);
        origin.error(ModelErrorKind::Auth, message)
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Checks that a key may be sent to `url`: the operator has chosen where it goes, and it goes encrypted or stays on this machine.
pub(crate) fn check_key_destination(url: &Url, base: Option<&BaseUrl>, origin: &Origin) -> Result<(), ModelError> {
    let Origin { key_variable, url_variable, .. } = origin;
    if base.is_some_and(|base| !base.allows_keys()) {
        let message = format!(
            "the key in {key_variable} is not sent to the base URL that the folder's hatchery.yaml names; set {url_variable}, or let \
             the operator look at the file and run `hatchery trust DIR`"
        );
        return Err(origin.error(ModelErrorKind::Auth, message));
    }
    if url.scheme() != "https" && !is_loopback(url) {
        let message = format!(
            "the key in {key_variable} is not sent in plain text to another machine; write {url_variable} with https, or unset \
             {key_variable} for a server that wants none"
        );
        return Err(origin.error(ModelErrorKind::Auth, message));
    }
    Ok(())
}

fn is_loopback(url: &Url) -> bool {
    // `localhost` and what is below it is this machine by RFC 6761, and not a matter of name servers.
    let is_local_name = |name: &str| name == "localhost" || name.ends_with(".localhost");
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| is_local_name(host.trim_end_matches('.')), |address| address.is_loopback())
}

/// Reads a base URL and appends path segments, escaped as they need.
pub(crate) fn endpoint_url<'a>(
    base: &str,
    segments: impl IntoIterator<Item = &'a str>,
    origin: &Origin,
) -> Result<Url, ModelError> {
    let wrong = |reason: &str| {
        let message = format!("{} is not a usable URL ({reason}); write it as https://host/path", origin.url_variable);
        origin.error(ModelErrorKind::BadRequest, message)
    };
    let mut url = Url::parse(base).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("neither http nor https"));
    }
    url.path_segments_mut().map_err(|()| wrong("it has no path"))?.pop_if_empty().extend(segments);
    Ok(url)
}

/// Waits for an answer to begin, but not for longer than [`FIRST_BYTE`].
async fn first_byte<T>(answer: impl Future<Output = T>, origin: &Origin) -> Result<T, ModelError> {
    tokio::time::timeout(FIRST_BYTE, answer).await.map_err(|_| {
        let message = format!("{} did not answer within {} s", origin.provider, FIRST_BYTE.as_secs());
        origin.error(ModelErrorKind::Timeout, message)
    })
}

fn is_worth_another_try(error: &ModelError) -> bool {
    match error.status {
        Some(status) => status == 429 || status >= 500,
        None => error.kind == ModelErrorKind::Network,
    }
}

/// `Retry-After` as seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(value).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

/// The bytes of a body. An error is the last item.
fn flow(response: Response, origin: Arc<Origin>) -> impl Stream<Item = Result<Bytes, ModelError>> + Send + use<> {
    let broken = origin.clone();
    let bytes = response.bytes_stream().map(move |chunk| {
        chunk.map_err(|error| {
            let message = format!("the connection to {} broke: {}", broken.provider, chain(&error.without_url()));
            broken.error(ModelErrorKind::Network, message)
        })
    });
    until_idle(Box::pin(bytes), origin)
}

type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, ModelError>> + Send>>;

/// The same stream, ended by an error when nothing comes for [`IDLE`].
fn until_idle(bytes: ByteStream, origin: Arc<Origin>) -> impl Stream<Item = Result<Bytes, ModelError>> + Send + use<> {
    stream::unfold(Some((bytes, origin)), |state| async move {
        let (mut bytes, origin) = state?;
        match tokio::time::timeout(IDLE, bytes.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(chunk))) => Some((Ok(chunk), Some((bytes, origin)))),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Err(_) => {
                let message =
                    format!("{} sent nothing for {} s in the middle of its answer", origin.provider, IDLE.as_secs());
                Some((Err(origin.error(ModelErrorKind::Timeout, message)), None))
            }
        }
    })
}

enum Collected {
    All,
    TooMuch,
    Broken(ModelError),
}

/// The first `most` bytes, and how the stream ended.
async fn collect(bytes: impl Stream<Item = Result<Bytes, ModelError>>, most: usize) -> (Bytes, Collected) {
    let mut bytes = std::pin::pin!(bytes);
    let mut body = BytesMut::new();
    while let Some(chunk) = bytes.next().await {
        match chunk {
            Ok(chunk) if body.len() + chunk.len() <= most => body.extend_from_slice(&chunk),
            Ok(mut chunk) => {
                chunk.truncate(most - body.len());
                body.extend_from_slice(&chunk);
                return (body.freeze(), Collected::TooMuch);
            }
            Err(error) => return (body.freeze(), Collected::Broken(error)),
        }
    }
    (body.freeze(), Collected::All)
}

/// An error with its causes, in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Arc<Origin> {
        Arc::new(Origin {
            model: "m".into(),
            provider: "Someone",
            key_variable: "KEY",
            url_variable: "URL",
            key: Some(Secret::from("s3cret")),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_falls_silent_for_sixty_seconds_ends_with_a_timeout() {
        let silent = stream::iter([Ok(Bytes::from_static(b"a"))]).chain(stream::pending());
        let items: Vec<_> = until_idle(Box::pin(silent), origin()).collect().await;
        assert_eq!(items[0].as_ref().unwrap(), "a");
        let error = items[1].as_ref().unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Timeout);
        assert_eq!(error.message, "Someone sent nothing for 60 s in the middle of its answer");
        assert_eq!(items.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_may_take_longer_than_sixty_seconds_in_all() {
        let slow = stream::iter(0..5).then(|_| async {
            tokio::time::sleep(Duration::from_secs(59)).await;
            Ok(Bytes::from_static(b"a"))
        });
        assert_eq!(
            until_idle(Box::pin(slow), origin()).filter(|item| std::future::ready(item.is_ok())).count().await,
            5
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_begin_within_five_minutes_is_a_timeout() {
        let error = first_byte(std::future::pending::<()>(), &origin()).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Timeout);
        assert_eq!(error.message, "Someone did not answer within 300 s");
        assert!(!is_worth_another_try(&error));
        let just_in_time = tokio::time::sleep(FIRST_BYTE - Duration::from_secs(1));
        assert!(first_byte(just_in_time, &origin()).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let chunks = || stream::iter([Ok(Bytes::from_static(b"abc")), Ok(Bytes::from_static(b"def"))]);
        let (body, end) = collect(chunks(), 6).await;
        assert!(body == "abcdef" && matches!(end, Collected::All));
        let (body, end) = collect(chunks(), 5).await;
        assert!(body == "abcde" && matches!(end, Collected::TooMuch));
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let is = |url: &str| is_loopback(&Url::parse(url).unwrap());
        for url in [
            "http://127.0.0.1:1/x",
            "http://127.9.9.9",
            "http://[::1]:1",
            "http://localhost",
            "http://LOCALHOST./",
            "http://a.localhost",
        ] {
            assert!(is(url), "{url}");
        }
        for url in [
            "http://10.0.0.1",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://0.0.0.0",
            "http://[::]",
            "http://notlocalhost",
        ] {
            assert!(!is(url), "{url}");
        }
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(read("Tue, 31 Dec 2999 23:59:59 GMT").unwrap() > LONGEST_WAIT);
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn no_error_shows_the_key() {
        let error = origin().refusal(400, br#"{"error":{"message":"bad key s3cret"}}"#, None);
        assert_eq!(error.message, "Someone answered HTTP 400: bad key [key]");
    }

    #[test]
    fn an_error_body_that_is_no_json_is_shown_cut() {
        let error = origin().refusal(502, "x".repeat(2_000).as_bytes(), None);
        assert_eq!(error.message, format!("Someone answered HTTP 502: {}…", "x".repeat(500)));
    }
}
