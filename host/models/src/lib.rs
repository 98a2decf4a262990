//! Model providers, and [`ModelProviders`], the registry that resolves a model by its name.
//!
//! | names | provider |
//! |---|---|
//! | `scripted:<file>` | [`scripted`]: answers from a YAML file, no network |
//! | `gemini-*`, `gemma-*`, `models/*` | Gemini API |
//! | `openai/*`, `gpt-*`, `o1*`, `o3*`, `o4*` | chat completions, of OpenAI or of a compatible server |
//!
//! Providers over HTTP share one client. A request is sent up to three times until the first byte of a response
//! arrives, and never again after that. If a stream breaks, the error is its last item. Providers do not aggregate
//! partial responses; the engine does.

mod capabilities;
mod failure;
mod files;
mod finish;
#[doc(hidden)]
pub mod fuzz;
mod gemini;
mod hashed_ngrams;
mod http;
mod nulls;
mod openai;
mod registry;
pub mod scripted;
mod settings;
mod sse;

pub use hashed_ngrams::HashedNgrams;
pub use registry::{ModelProvider, ModelProviders};
pub use settings::{BaseUrl, Secret, Settings, WritableFolders};
