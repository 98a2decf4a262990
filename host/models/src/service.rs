//! The services that are reached by a URL and a key: their names, variables and defaults.

use crate::settings::Connection;

/// The services that are reached by a URL and a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// The Gemini API. Its base URL has no version.
    Gemini,
    /// Vertex AI, which is accessed by credentials instead of a key. Its base URL has no version.
    Vertex,
    /// OpenAI, for chat completions, responses and embeddings. Its base URL has the version.
    OpenAi,
    /// The Anthropic API. Its base URL has no version.
    Anthropic,
    /// Ollama, by its chat completions.
    Ollama,
    /// vLLM, by its chat completions.
    Vllm,
    /// The server of llama.cpp, by its chat completions.
    LlamaCpp,
    /// OpenRouter, by its chat completions.
    OpenRouter,
    /// An Apigee gateway.
    Apigee,
}

/// The environment variables and the default of a service.
pub(crate) struct ServiceInfo {
    /// The name in messages.
    pub(crate) name: &'static str,
    /// The name in traces and metrics: `gen_ai.provider.name`.
    pub(crate) provider: &'static str,
    /// The variables of the key. The first that is set is used.
    pub(crate) key_variables: &'static [&'static str],
    pub(crate) url_variable: &'static str,
    pub(crate) url: ServiceUrl,
    pub(crate) key_rule: KeyRule,
}

impl ServiceInfo {
    /// Returns the variables of the key as text.
    pub(crate) fn key_variables(&self) -> String {
        self.key_variables.join(" or ")
    }

    /// Returns the URL of requests. `None` if it is missing.
    pub(crate) fn base_url(&self, connection: &Connection) -> Option<String> {
        let url = match (&connection.base_url, self.url) {
            (Some(url), _) => url.as_str(),
            (None, ServiceUrl::Default(url)) => url,
            (None, ServiceUrl::Required { .. }) => return None,
        };
        Some(url.to_owned())
    }

    /// Returns the variable to set, if a required one is missing.
    pub(crate) fn missing_variables(&self, connection: &Connection) -> Option<String> {
        if let (ServiceUrl::Required { example }, None) = (self.url, &connection.base_url) {
            return Some(format!("{}, such as {example}", self.url_variable));
        }
        match self.key_rule {
            _ if connection.api_key.is_some() => None,
            KeyRule::Required => Some(self.key_variables()),
            KeyRule::RequiredAtDefaultUrl if connection.base_url.is_none() => {
                Some(format!("{}, or {} for a server that needs none", self.key_variables(), self.url_variable))
            }
            KeyRule::RequiredAtDefaultUrl | KeyRule::Optional => None,
        }
    }
}

/// The base URL of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceUrl {
    Default(&'static str),
    /// It must be set, such as to the example.
    Required {
        example: &'static str,
    },
}

/// The rule for the key of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRule {
    Required,
    /// Not required if the base URL is set.
    RequiredAtDefaultUrl,
    Optional,
}

impl Service {
    /// All services.
    pub const ALL: [Self; 9] = [
        Self::Gemini,
        Self::Vertex,
        Self::OpenAi,
        Self::Anthropic,
        Self::Ollama,
        Self::Vllm,
        Self::LlamaCpp,
        Self::OpenRouter,
        Self::Apigee,
    ];

    /// Returns the environment variable with its base URL.
    pub fn url_variable(self) -> &'static str {
        self.info().url_variable
    }

    pub(crate) fn info(self) -> &'static ServiceInfo {
        match self {
            Self::Gemini => &ServiceInfo {
                name: "Gemini",
                provider: "gcp.gemini",
                key_variables: &["GOOGLE_API_KEY", "GEMINI_API_KEY"],
                url_variable: "GOOGLE_GEMINI_BASE_URL",
                url: ServiceUrl::Default("https://generativelanguage.googleapis.com"),
                key_rule: KeyRule::Required,
            },
            Self::Vertex => &ServiceInfo {
                name: "Vertex AI",
                provider: "gcp.vertex_ai",
                key_variables: &[],
                url_variable: "GOOGLE_VERTEX_BASE_URL",
                url: ServiceUrl::Default("https://aiplatform.googleapis.com"),
                key_rule: KeyRule::Optional,
            },
            Self::OpenAi => &ServiceInfo {
                name: "OpenAI",
                provider: "openai",
                key_variables: &["OPENAI_API_KEY"],
                url_variable: "OPENAI_BASE_URL",
                url: ServiceUrl::Default("https://api.openai.com/v1"),
                key_rule: KeyRule::RequiredAtDefaultUrl,
            },
            Self::Anthropic => &ServiceInfo {
                name: "Anthropic",
                provider: "anthropic",
                key_variables: &["ANTHROPIC_API_KEY"],
                url_variable: "ANTHROPIC_BASE_URL",
                url: ServiceUrl::Default("https://api.anthropic.com"),
                key_rule: KeyRule::Required,
            },
            Self::Ollama => &ServiceInfo {
                name: "Ollama",
                provider: "ollama",
                key_variables: &["OLLAMA_API_KEY"],
                url_variable: "OLLAMA_BASE_URL",
                url: ServiceUrl::Required { example: "http://localhost:11434/v1" },
                key_rule: KeyRule::Optional,
            },
            Self::Vllm => &ServiceInfo {
                name: "vLLM",
                provider: "vllm",
                key_variables: &["VLLM_API_KEY"],
                url_variable: "VLLM_BASE_URL",
                url: ServiceUrl::Required { example: "http://localhost:8000/v1" },
                key_rule: KeyRule::Optional,
            },
            Self::LlamaCpp => &ServiceInfo {
                name: "llama.cpp",
                provider: "llamacpp",
                key_variables: &["LLAMACPP_API_KEY"],
                url_variable: "LLAMACPP_BASE_URL",
                url: ServiceUrl::Required { example: "http://localhost:8080/v1" },
                key_rule: KeyRule::Optional,
            },
            Self::OpenRouter => &ServiceInfo {
                name: "OpenRouter",
                provider: "openrouter",
                key_variables: &["OPENROUTER_API_KEY"],
                url_variable: "OPENROUTER_BASE_URL",
                url: ServiceUrl::Default("https://openrouter.ai/api/v1"),
                key_rule: KeyRule::Required,
            },
            Self::Apigee => &ServiceInfo {
                name: "Apigee",
                provider: "apigee",
                key_variables: &["APIGEE_API_KEY"],
                url_variable: "APIGEE_PROXY_URL",
                url: ServiceUrl::Required { example: "https://gateway.example/path" },
                key_rule: KeyRule::Optional,
            },
        }
    }
}
