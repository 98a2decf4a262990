//! Models of third-party libraries, each behind a cargo feature of its name: genai and rig. A library converts requests
//! and answers, and knows the addresses of its providers. Keys, URLs, TLS, time limits, retries and errors come from
//! this crate.

#[cfg(any(feature = "genai", feature = "rig"))]
mod conversion;
#[cfg(feature = "genai")]
pub mod genai;
#[cfg(feature = "rig")]
pub mod rig;
#[cfg(any(feature = "genai", feature = "rig"))]
mod service;

#[cfg(any(feature = "genai", feature = "rig"))]
pub use self::conversion::ConversionError;
use crate::service::ServiceInfo;

/// The end of the variable with a provider's base URL.
const URL_SUFFIX: &str = "_BASE_URL";

/// Returns the services that only libraries have.
pub(crate) fn services() -> impl Iterator<Item = &'static ServiceInfo> {
    let services = std::iter::empty();
    #[cfg(feature = "genai")]
    let services = services.chain(genai::services());
    #[cfg(feature = "rig")]
    let services = services.chain(rig::services());
    services
}

/// Returns the beginning of the variables of a service, such as `GROQ`.
pub(crate) fn prefix(info: &ServiceInfo) -> &'static str {
    info.url_variable.strip_suffix(URL_SUFFIX).unwrap_or(info.url_variable)
}
