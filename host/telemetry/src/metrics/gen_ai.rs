//! Metrics of model calls under the names of OpenTelemetry's GenAI conventions, as its exporter for Prometheus writes them:
//! `gen_ai.client.operation.duration` is `gen_ai_client_operation_duration_seconds`.

use hatchery_core::{AttributeValue, SpanData};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Name, Names};

/// The buckets that the conventions recommend for seconds.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The buckets that the conventions recommend for tokens, up to the largest prompt.
const TOKENS: [f64; 12] =
    [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0];

type Histograms<const LABELS: usize> = Family<[(&'static str, Name); LABELS], Histogram, fn() -> Histogram>;

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn tokens() -> Histogram {
    Histogram::new(TOKENS)
}

/// Model calls by provider and model.
pub(super) struct ModelCalls {
    duration: Histograms<4>,
    first_chunk: Histograms<3>,
    tokens: Histograms<4>,
    retries: Family<[(&'static str, Name); 2], Counter>,
    providers: Names,
}

impl ModelCalls {
    /// Registers those of the conventions in `plain`, and all others in `prefixed`.
    pub(super) fn new(plain: &mut Registry, prefixed: &mut Registry) -> Self {
        let duration = Histograms::<4>::new_with_constructor(seconds);
        let first_chunk = Histograms::<3>::new_with_constructor(seconds);
        let tokens = Histograms::<4>::new_with_constructor(tokens);
        let retries = Family::<[(&'static str, Name); 2], Counter>::default();
        plain.register_with_unit(
            "gen_ai_client_operation_duration",
            "Time of model calls",
            Unit::Seconds,
            duration.clone(),
        );
        plain.register_with_unit(
            "gen_ai_client_operation_time_to_first_chunk",
            "Time of streamed model calls until their first chunk",
            Unit::Seconds,
            first_chunk.clone(),
        );
        plain.register("gen_ai_client_token_usage", "Tokens of a model call", tokens.clone());
        prefixed.register("model_retries", "Requests to models that were sent again", retries.clone());
        Self { duration, first_chunk, tokens, retries, providers: Names::default() }
    }

    /// Counts a call that has ended, with the value of its label `error_type`.
    pub(super) fn count(&self, span: &SpanData, model: &Name, error: Name) {
        let operation = Name(span.operation.name().unwrap_or_default().into());
        let provider = span.get("gen_ai.provider.name").and_then(AttributeValue::as_str).unwrap_or_default();
        let provider = self.providers.get(provider);
        let labels = [
            ("gen_ai_operation_name", operation),
            ("gen_ai_provider_name", provider.clone()),
            ("gen_ai_request_model", model.clone()),
        ];
        let with = |key, value| {
            let [operation, provider, model] = labels.clone();
            [operation, provider, model, (key, value)]
        };
        self.duration.get_or_create(&with("error_type", error)).observe(span.duration.as_secs_f64());
        if let Some(AttributeValue::Number(seconds)) = span.get("gen_ai.response.time_to_first_chunk") {
            self.first_chunk.get_or_create(&labels).observe(*seconds);
        }
        for (kind, attribute) in [("input", "gen_ai.usage.input_tokens"), ("output", "gen_ai.usage.output_tokens")] {
            if let Some(tokens) = span.get(attribute).and_then(AttributeValue::as_u64) {
                let labels = with("gen_ai_token_type", Name(kind.into()));
                self.tokens.get_or_create(&labels).observe(tokens as f64);
            }
        }
        if let Some(retries) = span.get("hatchery.model.retries").and_then(AttributeValue::as_u64) {
            self.retries.get_or_create(&[("provider", provider), ("model", model.clone())]).inc_by(retries);
        }
    }
}
