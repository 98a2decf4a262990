//! A client of Firestore's REST API: reads of documents, queries and commits.

mod backoff;
mod failure;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::StoreError;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

pub(super) use self::backoff::Backoff;
use self::failure::{Failure, api_error, store_error, too_large, unavailable};
use super::document::{Document, Operation, Value, Write};

const ENDPOINT: &str = "https://firestore.googleapis.com";
const DEFAULT_DATABASE: &str = "(default)";
/// The access token that the emulator accepts as an administrator's.
const EMULATOR_TOKEN: &str = "owner";
/// The variable with the address of the emulator, as Google's client libraries have it.
const EMULATOR_VARIABLE: &str = "FIRESTORE_EMULATOR_HOST";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum timeout of an attempt of a request that is repeated.
const MIN_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number and bytes of the writes of one commit. Firestore accepts 10 MiB, its emulator 4.
const MAX_COMMIT_WRITES: usize = 400;
const MAX_COMMIT_BYTES: usize = 3 * 1024 * 1024;

/// More than this is too much for a document, together with its name and Firestore's overhead.
const MAX_DOCUMENT_BYTES: usize = 1_000_000;

/// Maximum number of documents that one request reads by name, or lists.
const MAX_READ_NAMES: usize = 300;

/// Returns access tokens of Google Cloud, which may use the scope `https://www.googleapis.com/auth/datastore` or
/// `…/cloud-platform`.
#[async_trait]
pub trait AccessTokens: Send + Sync {
    /// Returns a token that is valid for some time. Called for each request, so tokens should be cached.
    ///
    /// # Errors
    /// [`StoreError::Backend`] if there are no credentials.
    async fn token(&self) -> Result<String, StoreError>;

    /// Forgets a token that was not accepted, so that the next one is another. By default it does nothing.
    fn forget(&self, _token: &str) {}
}

/// A client of one Firestore database. Cheap to clone; clones share their connections.
///
/// ```
/// use hatchery_stores::firestore::{FirestoreClient, FirestoreSessionService};
///
/// # fn main() -> Result<(), hatchery_core::StoreError> {
/// let client = FirestoreClient::builder("my-project").emulator("127.0.0.1:8080").build()?;
/// let sessions = FirestoreSessionService::new(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FirestoreClient(Arc<Inner>);

struct Inner {
    http: Client,
    /// The database with a slash at its end, to which methods are appended.
    url: Url,
    /// The prefix of names of documents: `projects/…/documents/`.
    prefix: String,
    authentication: Authentication,
}

enum Authentication {
    Emulator,
    Tokens(Arc<dyn AccessTokens>),
}

/// The settings of a [`FirestoreClient`].
#[must_use]
pub struct FirestoreBuilder {
    project: String,
    database: String,
    emulator: Option<String>,
    http: Option<Client>,
    tokens: Option<Arc<dyn AccessTokens>>,
}

impl FirestoreBuilder {
    /// Sets the database. Default: `(default)`.
    pub fn database(self, database: impl Into<String>) -> Self {
        Self { database: database.into(), ..self }
    }

    /// Sets the source of access tokens.
    pub fn access_tokens(self, tokens: Arc<dyn AccessTokens>) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// Sets the HTTP client. It should not follow redirects. Default: a new client.
    pub fn http_client(self, http: Client) -> Self {
        Self { http: Some(http), ..self }
    }

    /// Uses the emulator at `host:port`, which needs no access tokens.
    pub fn emulator(self, address: impl Into<String>) -> Self {
        Self { emulator: Some(address.into()), ..self }
    }

    /// Uses the emulator that the environment variable `FIRESTORE_EMULATOR_HOST` names, if it is set.
    pub fn emulator_from_env(self) -> Self {
        let address = std::env::var(EMULATOR_VARIABLE).ok().filter(|address| !address.is_empty());
        Self { emulator: address.or(self.emulator), ..self }
    }

    /// Creates the client. Does not connect.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if the project, the database or the emulator's address cannot be a part of a URL,
    /// or if there are no access tokens. [`StoreError::Backend`] if HTTP cannot be set up.
    pub fn build(self) -> Result<FirestoreClient, StoreError> {
        let Self { project, database, emulator, http, tokens } = self;
        for (noun, name) in [("project", &project), ("database", &database)] {
            let is_valid = |character: char| character.is_ascii_alphanumeric() || "-_.:()".contains(character);
            if name.is_empty() || !name.chars().all(is_valid) {
                return Err(StoreError::InvalidRequest(format!("`{name}` is not the id of a Firestore {noun}")));
            }
        }
        let prefix = format!("projects/{project}/databases/{database}/documents/");
        let endpoint = emulator.as_ref().map_or_else(|| ENDPOINT.to_owned(), |address| format!("http://{address}"));
        let url = Url::parse(&format!("{endpoint}/v1/{prefix}")).map_err(|error| {
            let address = emulator.as_deref().unwrap_or_default();
            StoreError::InvalidRequest(format!(
                "`{address}` is not the address of a Firestore emulator ({error}): write it as `127.0.0.1:8080`"
            ))
        })?;
        let authentication = match (emulator, tokens) {
            (Some(_), _) => Authentication::Emulator,
            (None, Some(tokens)) => Authentication::Tokens(tokens),
            (None, None) => {
                return Err(StoreError::InvalidRequest(format!(
                    "Firestore needs access tokens: set `access_tokens`, or {EMULATOR_VARIABLE} for the emulator"
                )));
            }
        };
        let http = match http {
            Some(http) => http,
            None => new_http_client()?,
        };
        Ok(FirestoreClient(Arc::new(Inner { http, url, prefix, authentication })))
    }
}

fn new_http_client() -> Result<Client, StoreError> {
    // Fails if the process has a crypto provider already; any will do.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .redirect(Policy::none())
        .user_agent(concat!("hatchery/", env!("CARGO_PKG_VERSION")))
        .build();
    client.map_err(|error| StoreError::backend("cannot set up HTTP for Firestore", error))
}

impl fmt::Debug for FirestoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FirestoreClient").field(&self.0.url.as_str()).finish()
    }
}

/// Documents that were read at one time.
pub(super) struct Snapshot {
    /// The documents in the order of the requested names; `None` if there is no document with the name.
    pub(super) documents: Vec<Option<Document>>,
    /// The time of the read by the clock of the service, at which more can be read.
    pub(super) read_time: String,
}

/// The result of a commit.
pub(super) enum Commit {
    /// The writes were applied. Contains the time of the change of the first document.
    Applied(String),
    /// A condition did not hold, or other writes interfered. Nothing was written.
    Conflict,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadResult {
    found: Option<Document>,
    missing: Option<String>,
    document: Option<Document>,
    #[serde(default)]
    read_time: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentPage {
    #[serde(default)]
    documents: Vec<Document>,
    #[serde(default)]
    next_page_token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregationResult {
    result: Option<Aggregation>,
    #[serde(default)]
    read_time: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Aggregation {
    aggregate_fields: BTreeMap<String, Value>,
}

/// A request to the REST API.
struct Request<'a> {
    url: Url,
    /// The arguments of a method; `None` for a list.
    body: Option<&'a Json>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommitResponse {
    #[serde(default)]
    write_results: Vec<WriteResult>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WriteResult {
    #[serde(default)]
    update_time: String,
}

impl FirestoreClient {
    /// Returns the settings for the client of a project's database.
    pub fn builder(project: impl Into<String>) -> FirestoreBuilder {
        let (project, database) = (project.into(), DEFAULT_DATABASE.into());
        FirestoreBuilder { project, database, emulator: None, http: None, tokens: None }
    }

    /// Returns a document's name without the name of the database.
    pub(super) fn relative<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.0.prefix).unwrap_or(name)
    }

    /// Reads documents by name, with all fields or the fields of `field_paths`, now or at an earlier time.
    pub(super) async fn read(
        &self,
        names: &[String],
        field_paths: Option<&[String]>,
        read_time: Option<&str>,
    ) -> Result<Snapshot, StoreError> {
        let mut snapshot =
            Snapshot { documents: Vec::new(), read_time: read_time.map(ToOwned::to_owned).unwrap_or_default() };
        for names in names.chunks(MAX_READ_NAMES) {
            let full: Vec<_> = names.iter().map(|name| self.full(name)).collect();
            let mut request = json!({"documents": full});
            if let Some(field_paths) = field_paths {
                set(&mut request, "mask", json!({"fieldPaths": field_paths}));
            }
            if !snapshot.read_time.is_empty() {
                set(&mut request, "readTime", json!(snapshot.read_time));
            }
            let request = self.method("", "batchGet", &request);
            let results: Vec<ReadResult> = self.repeat(&request, "read from Firestore").await?;
            let mut found: HashMap<String, Document> = HashMap::new();
            for result in results {
                if !result.read_time.is_empty() {
                    snapshot.read_time = result.read_time;
                }
                if let Some(document) = result.found {
                    found.insert(document.name.clone(), document);
                } else if result.missing.is_none() {
                    return Err(unreadable("read from Firestore", "a result is neither found nor missing"));
                }
            }
            snapshot.documents.extend(full.iter().map(|name| found.get(name).cloned()));
        }
        Ok(snapshot)
    }

    /// Runs a query on the collections of a document, or of the database if `parent` is empty.
    pub(super) async fn query(
        &self,
        parent: &str,
        query: &Json,
        read_time: Option<&str>,
    ) -> Result<Vec<Document>, StoreError> {
        let mut request = json!({"structuredQuery": query});
        if let Some(time) = read_time {
            set(&mut request, "readTime", json!(time));
        }
        let request = self.method(parent, "runQuery", &request);
        let results: Vec<ReadResult> = self.repeat(&request, "query Firestore").await?;
        Ok(results.into_iter().filter_map(|result| result.document).collect())
    }

    /// Counts the results of a query in the collections of a document, without reading them. Also returns the read
    /// time.
    pub(super) async fn count(&self, parent: &str, query: &Json) -> Result<(u64, String), StoreError> {
        let activity = "count in Firestore";
        let query = json!({"structuredQuery": query, "aggregations": [{"alias": "found", "count": {}}]});
        let body = json!({"structuredAggregationQuery": query});
        let request = self.method(parent, "runAggregationQuery", &body);
        let results: Vec<AggregationResult> = self.repeat(&request, activity).await?;
        let mut found = results.into_iter().filter_map(|found| Some((found.result?.aggregate_fields, found.read_time)));
        match found.next().map(|(mut fields, time)| (fields.remove("found"), time)) {
            Some((Some(Value::Integer(count)), time)) => {
                Ok((count.parse().map_err(|error| unreadable(activity, error))?, time))
            }
            Some(_) | None => Err(unreadable(activity, "there is no count")),
        }
    }

    /// Returns the names of the documents of a collection, also of those that only contain collections.
    pub(super) async fn list_names(&self, collection: &str) -> Result<Vec<String>, StoreError> {
        let (mut names, mut token) = (Vec::new(), String::new());
        loop {
            let mut url = self.url(collection, None);
            let page_size = MAX_READ_NAMES.to_string();
            url.query_pairs_mut().append_pair("showMissing", "true").append_pair("pageSize", &page_size);
            if !token.is_empty() {
                url.query_pairs_mut().append_pair("pageToken", &token);
            }
            let page: DocumentPage = self.repeat(&Request { url, body: None }, "list documents in Firestore").await?;
            names.extend(page.documents.iter().map(|document| self.relative(&document.name).to_owned()));
            token = page.next_page_token;
            if token.is_empty() {
                return Ok(names);
            }
        }
    }

    /// Makes writes, all or none.
    ///
    /// # Errors
    /// After [`StoreError::Busy`] the writes may have been made: it includes lost answers.
    pub(super) async fn commit(&self, writes: &[Write]) -> Result<Commit, StoreError> {
        let activity = "write to Firestore";
        let full: Vec<_> = writes.iter().map(|write| self.full_write(write)).collect();
        let body = json!({"writes": full});
        let response: CommitResponse =
            match self.send(&self.method("", "commit", &body), activity, REQUEST_TIMEOUT).await {
                Ok(response) => response,
                Err(Failure::Api(error)) => match error.status.as_str() {
                    "ABORTED" | "ALREADY_EXISTS" | "FAILED_PRECONDITION" | "NOT_FOUND" => return Ok(Commit::Conflict),
                    "INVALID_ARGUMENT" if writes.iter().any(|write| write.bytes() > MAX_DOCUMENT_BYTES) => {
                        return Err(too_large(&error));
                    }
                    _ => return Err(store_error(activity, error)),
                },
                Err(Failure::Network(error)) => {
                    tracing::warn!(%error, "Firestore has not answered a commit");
                    return Err(unavailable());
                }
                Err(Failure::Store(error)) => return Err(error),
            };
        let first = response.write_results.into_iter().next();
        Ok(Commit::Applied(first.map(|result| result.update_time).unwrap_or_default()))
    }

    /// Sends a request that changes nothing, again for some time if the service is not available.
    async fn repeat<T: DeserializeOwned>(&self, request: &Request<'_>, activity: &str) -> Result<T, StoreError> {
        let mut backoff = Backoff::new();
        loop {
            let timeout = backoff.remaining().max(MIN_ATTEMPT_TIMEOUT);
            match self.send(request, activity, timeout).await {
                Ok(response) => return Ok(response),
                Err(failure) if failure.is_temporary() && backoff.wait().await => {}
                Err(failure) => return Err(failure.into_error(activity)),
            }
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        activity: &str,
        timeout: Duration,
    ) -> Result<T, Failure> {
        let post = |token: String| async move {
            let failed = |error: reqwest::Error| Failure::Network(error.without_url());
            let url = request.url.clone();
            let request = match request.body {
                Some(body) => self.0.http.post(url).json(body),
                None => self.0.http.get(url),
            };
            let response = request.bearer_auth(token).timeout(timeout).send().await.map_err(failed)?;
            Ok::<_, Failure>((response.status(), response.bytes().await.map_err(failed)?))
        };
        let (status, body) = match &self.0.authentication {
            Authentication::Emulator => post(EMULATOR_TOKEN.to_owned()).await?,
            Authentication::Tokens(tokens) => {
                let token = tokens.token().await.map_err(Failure::Store)?;
                match post(token.clone()).await? {
                    (StatusCode::UNAUTHORIZED, _) => {
                        // The token was withdrawn before it expired.
                        tokens.forget(&token);
                        post(tokens.token().await.map_err(Failure::Store)?).await?
                    }
                    answer => answer,
                }
            }
        };
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| Failure::Store(unreadable(activity, error)));
        }
        Err(Failure::Api(api_error(status, &body)))
    }

    /// Returns the request of a method on the collections of a document, or of the database if `parent` is empty.
    fn method<'a>(&self, parent: &str, method: &str, body: &'a Json) -> Request<'a> {
        Request { url: self.url(parent, Some(method)), body: Some(body) }
    }

    /// Returns `…/documents[/NAME][:METHOD]`. The parts of `name` are percent-encoded.
    fn url(&self, name: &str, method: Option<&str>) -> Url {
        let mut url = self.0.url.clone();
        let mut path = url.path().trim_end_matches('/').to_owned();
        for segment in name.split('/').filter(|segment| !segment.is_empty()) {
            path.push('/');
            percent_encode(segment, &mut path);
        }
        if let Some(method) = method {
            path.push(':');
            path.push_str(method);
        }
        url.set_path(&path);
        url
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.0.prefix)
    }

    fn full_write(&self, write: &Write) -> Write {
        let mut write = write.clone();
        match &mut write.operation {
            Operation::Update { name, .. } | Operation::Delete(name) => *name = self.full(name),
        }
        write
    }
}

/// Encodes all that has, or may have, a meaning in a path.
fn percent_encode(segment: &str, path: &mut String) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// Sets a key of an object.
pub(super) fn set(object: &mut Json, key: &str, value: Json) {
    if let Json::Object(map) = object {
        map.insert(key.to_owned(), value);
    }
}

fn unreadable(activity: &str, reason: impl fmt::Display) -> StoreError {
    StoreError::backend(format!("cannot {activity}"), format!("its response is not valid: {reason}"))
}

/// Splits writes into commits.
pub(super) fn split(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let mut commits: Vec<Vec<Write>> = Vec::new();
    let mut bytes = 0;
    for write in writes {
        bytes += write.bytes();
        match commits.last_mut() {
            Some(last) if last.len() < MAX_COMMIT_WRITES && bytes <= MAX_COMMIT_BYTES => last.push(write),
            _ => {
                bytes = write.bytes();
                commits.push(vec![write]);
            }
        }
    }
    commits
}
