//! Model providers, and [`ModelProviders`], the registry that resolves a model by its name.
//!
//! | names | provider |
//! |---|---|
//! | `scripted:<file>` | [`scripted`]: answers from a YAML file, no network |
//! | `gemini-*`, `gemma-*`, `models/*` | Gemini API |
//! | `vertex/*`, `projects/*` | Vertex AI: Gemini and Claude |
//! | `claude-*`, `anthropic/*` | Anthropic Messages API |
//! | `openai/*`, `gpt-*`, `o1*`, `o3*`, `o4*` | chat completions, of OpenAI or of a compatible server |
//! | `gpt-realtime*` and other names with `realtime` | Realtime API of OpenAI, for live connections |
//! | `openai-responses/*` | responses API of OpenAI |
//! | `ollama/*`, `vllm/*`, `llamacpp/*`, `openrouter/*` | chat completions of these servers |
//! | `genai:*`, `rig:*` | models of third-party [`libraries`], behind cargo features |
//! | `apigee/*` | an Apigee gateway in front of Gemini, Vertex AI or OpenAI |
//!
//! Providers over HTTP share one client. A request is sent up to three times until the first byte of a response
//! arrives, and never again after that ([`retry`]). If a stream breaks, the error is its last item. Providers do not
//! aggregate partial responses; the engine does.

mod anthropic;
mod apigee;
mod capabilities;
mod encoding;
mod failure;
mod files;
mod finish;
#[doc(hidden)]
pub mod fuzz;
mod gemini;
mod google_credentials;
mod google_tokens;
mod hashed_ngrams;
mod http;
mod http_model;
pub mod libraries;
mod live_socket;
mod nulls;
mod openai;
mod prompt;
mod provider;
mod realtime;
mod registry;
mod responses;
pub mod retry;
pub mod scripted;
mod service;
mod settings;
mod signatures;
mod sse;
mod vertex;

pub use google_tokens::GoogleTokens;
pub use hashed_ngrams::HashedNgrams;
pub use hatchery_egress::Secret;
pub use provider::ModelProvider;
pub use registry::{ModelProviders, ProviderStatus};
pub use service::Service;
pub use settings::{BaseUrl, Connection, GoogleCloud, Settings, WritableFolders};
