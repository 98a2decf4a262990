//! Models: the [`ModelProviders`] that finds one by name, and the providers.
//!
//! | names | provider |
//! |---|---|
//! | `scripted:<file>` | [`scripted`]: answers from a YAML file, no network |
//! | `gemini-*`, `gemma-*`, `models/*` | Gemini API |
//! | `openai/*`, `gpt-*`, `o1*`, `o3*`, `o4*` | chat completions, of OpenAI or of whoever speaks them |
//!
//! Providers over HTTP share one client. A request is tried up to three times before its first byte has come, never after; a stream that
//! breaks is reported as its last item, behind what came before. Nothing here adds pieces up: that is the engine's work.

mod capabilities;
mod failure;
mod finish;
#[doc(hidden)]
pub mod fuzz;
mod gemini;
mod http;
mod openai;
mod registry;
pub mod scripted;
mod settings;
mod sse;

pub use registry::{ModelProvider, ModelProviders};
pub use settings::{BaseUrl, Secret, Settings, WritableFolders};
