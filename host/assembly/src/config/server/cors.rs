//! Cross-origin resource sharing: `server.cors`.

use std::time::Duration;

use hatchery_core::one_or_many;
use hatchery_wasm::limits::units;
use serde::Deserialize;

/// The longest time for which browsers keep the answer to a preflight request.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(3600);

/// The pages of other origins that may send requests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CorsConfig {
    /// The paths: segments, in which `*` matches any text, and at the end `**` for any segments. Default: `/**`.
    pub mapping: String,
    /// Origins such as `https://app.example`, or `*` for all.
    #[serde(deserialize_with = "one_or_many")]
    pub origins: Vec<String>,
    /// Methods, or `*` for all. Default: those that routes have.
    #[serde(deserialize_with = "one_or_many")]
    pub methods: Vec<String>,
    /// Names of additional headers that requests may have, or `*` for all. Default: all.
    #[serde(deserialize_with = "one_or_many")]
    pub headers: Vec<String>,
    /// True if requests may have credentials of the browser, such as cookies.
    #[serde(alias = "allowCredentials")]
    pub allow_credentials: bool,
    /// Time for which a browser may cache the response to a preflight request. Default: 1 h.
    #[serde(alias = "maxAge", deserialize_with = "units::deserialize_duration")]
    pub max_age: Duration,
}

impl Default for CorsConfig {
    fn default() -> Self {
        Self {
            mapping: "/**".into(),
            origins: Vec::new(),
            methods: ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"].map(Into::into).to_vec(),
            headers: vec!["*".into()],
            allow_credentials: false,
            max_age: DEFAULT_MAX_AGE,
        }
    }
}

impl CorsConfig {
    /// Checks for entries that would match nothing, or more than intended.
    ///
    /// # Errors
    /// The problem, without the key.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.origins.is_empty() {
            return Err(
                "`origins` is missing: the origins whose pages may send requests, such as https://app.example".into()
            );
        }
        self.check_mapping()?;
        self.origins.iter().filter(|origin| *origin != "*").try_for_each(|origin| check_origin(origin))?;
        if self.allow_credentials && self.origins.iter().any(|origin| origin == "*") {
            let message = "`allow_credentials` together with the origin `*` would let every web page act for the user of the browser; \
                           list the origins, or leave `allow_credentials` out";
            return Err(message.into());
        }
        for (key, names) in [("methods", &self.methods), ("headers", &self.headers)] {
            let is_token = |name: &&String| {
                name.is_empty()
                    || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
            };
            if let Some(name) = names.iter().find(is_token) {
                return Err(format!("`{}` in `{key}` is not a valid name", name.escape_debug()));
            }
        }
        Ok(())
    }

    fn check_mapping(&self) -> Result<(), String> {
        let mapping = self.mapping.escape_debug();
        let Some(path) = self.mapping.strip_prefix('/') else {
            return Err(format!("`mapping` is `{mapping}`, but must begin with `/`, as in `/**`"));
        };
        let mut segments = path.split('/').rev();
        let _last = segments.next();
        if segments.any(|segment| segment == "**") {
            Err(format!("`mapping` is `{mapping}`, but `**` may only be at its end"))
        } else {
            Ok(())
        }
    }
}

/// Checks that an origin is one as browsers send it.
fn check_origin(origin: &str) -> Result<(), String> {
    let authority = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
    let is_authority =
        |text: &str| !text.is_empty() && !text.contains(['/', '?', '#', '@', '*', ' ']) && text.is_ascii();
    if authority.is_some_and(is_authority) {
        return Ok(());
    }
    Err(format!(
        "`{}` is not a valid origin; write the scheme, the host and the port, without a path, as in http://localhost:4200, or `*` for all",
        origin.escape_debug()
    ))
}
