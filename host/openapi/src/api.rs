//! One API: its document, which is read once, and the client for its requests.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hatchery_core::excerpt;
use hatchery_core::sync::MutexExt;
use hatchery_egress::{FileError, read_file};
use reqwest::Url;

use crate::config::{ApiConfig, Confirmation, DocumentSource, Limits, Selection};
use crate::document::{Document, Draft, Location, Operation, ServerSettings};
use crate::error::ApiError;
use crate::http::Http;

/// Delay before a document that could not be read is read again.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// An API that agents share.
pub(crate) struct Api {
    /// Prefix of the names of its toolsets.
    pub(crate) prefix: &'static str,
    pub(crate) name: String,
    pub(crate) config: ApiConfig,
    pub(crate) http: Http,
    /// Held while the document is read, so that concurrent runs read it once.
    reading: tokio::sync::Mutex<()>,
    state: Mutex<DocumentState>,
}

/// The state of the document.
#[derive(Clone, Default)]
pub(crate) enum DocumentState {
    /// No agent has needed it.
    #[default]
    Idle,
    /// It has been read.
    Ready(Arc<Document>),
    /// It could not be read.
    Down { error: ApiError, since: Instant },
}

impl Api {
    pub(crate) fn new(prefix: &'static str, name: impl Into<String>, config: ApiConfig) -> Arc<Self> {
        let ApiConfig { egress, credentials, headers, limits, .. } = config.clone();
        let name = name.into();
        let http = Http::new(format!("{prefix}:{name}"), egress, credentials, headers, limits);
        Arc::new(Self { prefix, name, config, http, reading: tokio::sync::Mutex::default(), state: Mutex::default() })
    }

    pub(crate) fn state(&self) -> DocumentState {
        self.state.lock_unpoisoned().clone()
    }

    fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Returns the document. Reads it first, unless that has succeeded before.
    pub(crate) async fn document(&self) -> Result<Arc<Document>, ApiError> {
        if let Some(known) = self.latest() {
            return known;
        }
        let _reading = self.reading.lock().await;
        if let Some(known) = self.latest() {
            return known;
        }
        let read = self.read().await;
        *self.state.lock_unpoisoned() = match &read {
            Ok(document) => DocumentState::Ready(document.clone()),
            Err(error) => DocumentState::Down { error: error.clone(), since: Instant::now() },
        };
        read
    }

    fn latest(&self) -> Option<Result<Arc<Document>, ApiError>> {
        match self.state() {
            DocumentState::Ready(document) => Some(Ok(document)),
            DocumentState::Down { error, since } if since.elapsed() < RETRY_DELAY => Some(Err(error)),
            DocumentState::Idle | DocumentState::Down { .. } => None,
        }
    }

    async fn read(&self) -> Result<Arc<Document>, ApiError> {
        let (text, url) = match &self.config.document {
            DocumentSource::Url(text) => {
                let url = Url::parse(text)
                    .map_err(|error| ApiError::Unreadable(format!("`{}`: {error}", excerpt(text, 200))))?;
                (self.http.read_document(&url).await?, Some(url))
            }
            DocumentSource::Integration(integration) => {
                let timeout = self.limits().call_timeout;
                let made = tokio::time::timeout(timeout, integration.document(&self.http)).await;
                return made.unwrap_or(Err(ApiError::Timeout(timeout))).map(Arc::new);
            }
            DocumentSource::File(path) => {
                let read = read_file(path, self.limits().max_document).await.map_err(|error| match error {
                    FileError::TooLarge(limit) => ApiError::DocumentTooLarge(limit),
                    FileError::Io(error) => ApiError::UnreadableFile { file: path.clone(), reason: error.to_string() },
                });
                (read?, None)
            }
        };
        // A large text takes seconds.
        let parse = tokio::task::spawn_blocking(move || Document::parse(&text, url).map(Arc::new));
        parse.await.map_err(|error| ApiError::Invalid(error.to_string()))?
    }

    /// Returns the operations that the settings of the API and `selection` include. Those for which no request can be
    /// made are omitted, with a warning.
    ///
    /// # Errors
    /// If there are none, or too many, or if the settings of the API or `confirmation` list an unknown operation.
    pub(crate) async fn operations(
        self: &Arc<Self>,
        selection: Selection,
        confirmation: Confirmation,
    ) -> Result<Vec<Arc<Operation>>, ApiError> {
        let (document, api) = (self.document().await?, self.clone());
        // Schemas are compiled to check them.
        let select = tokio::task::spawn_blocking(move || api.select(&document, &selection, &confirmation));
        select.await.map_err(|error| ApiError::Invalid(error.to_string()))?
    }

    fn select(
        &self,
        document: &Document,
        selection: &Selection,
        confirmation: &Confirmation,
    ) -> Result<Vec<Arc<Operation>>, ApiError> {
        let mut drafts = document.drafts()?;
        let known: BTreeSet<String> = document.operation_names().iter().cloned().collect();
        self.check_confirmation(confirmation, &known)?;
        drafts.retain(|draft| {
            let includes = |selection: &Selection| selection.includes(&draft.name, &draft.tags);
            includes(&self.config.selection) && includes(selection)
        });
        self.report_unknown_names(selection, &known);
        let (count, max) = (drafts.len(), self.limits().max_tools);
        if count > max {
            return Err(ApiError::TooManyOperations { count, max });
        }
        let (operations, reasons) = self.build(&drafts);
        match (operations.is_empty(), reasons.first()) {
            (false, _) => Ok(operations),
            (true, Some(reason)) => Err(ApiError::NoOperations(format!("no operation can be used; {reason}"))),
            (true, None) => {
                let reason = format!("no operation is selected; the document has {}", list_first_names(&known));
                Err(ApiError::NoOperations(reason))
            }
        }
    }

    /// Returns an error if the settings of the API or `confirmation` list an unknown operation: a misspelt name would
    /// let the call through without a confirmation.
    fn check_confirmation(&self, confirmation: &Confirmation, known: &BTreeSet<String>) -> Result<(), ApiError> {
        let unknown = [&self.config.confirmation, confirmation].into_iter().find_map(|it| it.unknown_name(known));
        match unknown {
            Some(name) => {
                Err(ApiError::UnknownConfirmation { name: excerpt(name, 120), known: list_first_names(known) })
            }
            None => Ok(()),
        }
    }

    /// Logs the selected names that are not in the document.
    fn report_unknown_names(&self, selection: &Selection, known: &BTreeSet<String>) {
        for names in [&self.config.selection.names, &selection.names].into_iter().flatten() {
            for name in names.difference(known) {
                tracing::warn!(api = self.name, operation = name, "an OpenAPI document has no such operation");
            }
        }
    }

    /// Builds the operations. Also returns the reasons why some of them are omitted.
    fn build(&self, drafts: &[Draft<'_>]) -> (Vec<Arc<Operation>>, Vec<String>) {
        let ApiConfig { base_url, server_variables, credentials, headers, .. } = &self.config;
        let is_supplied = |location: Location, name: &str| {
            let is_header = location == Location::Header && headers.keys().any(|own| own.eq_ignore_ascii_case(name));
            is_header || credentials.supplies(location, name)
        };
        let own = match &self.config.document {
            DocumentSource::Integration(integration) => Some(integration.base_url()),
            DocumentSource::Url(_) | DocumentSource::File(_) => None,
        };
        let base_url = own.as_deref().or(base_url.as_deref());
        let servers = ServerSettings { base_url, variables: server_variables };
        let mut reasons = Vec::new();
        let built = drafts.iter().filter_map(|draft| match draft.build(servers, &is_supplied) {
            Ok(operation) => Some(Arc::new(operation)),
            Err(reason) => {
                tracing::warn!(api = self.name, operation = draft.name, "an operation of an API is left out: {reason}");
                reasons.push(format!("`{}`: {reason}", draft.name));
                None
            }
        });
        (built.collect(), reasons)
    }
}

/// Lists the first of these names, for a message.
fn list_first_names(names: &BTreeSet<String>) -> String {
    names.iter().take(10).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
