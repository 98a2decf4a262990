//! Addresses of requests, and where a key may be sent.

use hatchery_core::{ModelError, ModelErrorKind};
use hatchery_egress::is_loopback;
use reqwest::Url;

use crate::BaseUrl;
use crate::failure::Origin;

/// Checks that a key may be sent to `url`: the operator chose the base URL, and the connection is encrypted or local.
pub(super) fn check_key_destination(url: &Url, base: Option<&BaseUrl>, origin: &Origin) -> Result<(), ModelError> {
    let url_variable = origin.service.url_variable;
    let key_variables = origin.service.key_variables();
    let (key, alternative) = match &origin.credentials {
        Some(credentials) => (format!("an access token of {}", credentials.origin()), String::new()),
        None => {
            (format!("the key in {key_variables}"), format!(", or unset {key_variables} for a server that needs none"))
        }
    };
    let refusal = if base.is_some_and(|base| !base.allows_keys()) {
        format!(
            "{key} is not sent to the base URL that the folder's hatchery.yaml names; set {url_variable}, or let the operator look at the \
             file and run `hatchery trust DIR`"
        )
    } else if url.scheme() != "https" && !is_loopback(url) {
        format!("{key} is not sent in plain text to another machine; write {url_variable} with https{alternative}")
    } else {
        return Ok(());
    };
    Err(origin.error(ModelErrorKind::Auth, refusal))
}

/// Parses a base URL and appends percent-encoded path segments.
pub(super) fn endpoint_url<'a>(
    base: &str,
    segments: impl IntoIterator<Item = &'a str>,
    origin: &Origin,
) -> Result<Url, ModelError> {
    let invalid = |reason: &str| {
        let message =
            format!("{} is not a usable URL ({reason}); write it as https://host/path", origin.service.url_variable);
        origin.error(ModelErrorKind::BadRequest, message)
    };
    let mut url = Url::parse(base).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("neither http nor https"));
    }
    url.path_segments_mut().map_err(|()| invalid("it has no path"))?.pop_if_empty().extend(segments);
    Ok(url)
}
