//! Metrics of model calls under the names of OpenTelemetry's GenAI conventions, as its exporter for Prometheus writes
//! them: `gen_ai.client.operation.duration` is `gen_ai_client_operation_duration_seconds`.

use std::sync::{Arc, Mutex, OnceLock};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AttributeValue, SpanData};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::label_values::{LabelValue, SeriesByLabel};
use super::{CallSeries, error_label};

/// The buckets that the conventions recommend for seconds.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The buckets that the conventions recommend for tokens, up to the largest prompt.
const TOKENS: [f64; 12] =
    [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0];

type Histograms<const LABELS: usize> = Family<[(&'static str, LabelValue); LABELS], Histogram, fn() -> Histogram>;

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
    retries: Family<[(&'static str, LabelValue); 2], Counter>,
    /// The names of providers.
    providers: SeriesByLabel<LabelValue>,
}

/// The metrics of the calls of one model by one operation.
pub(super) struct ModelSeries {
    pub(super) calls: CallSeries,
    pub(super) input_tokens: OnceLock<Counter>,
    pub(super) output_tokens: OnceLock<Counter>,
    providers: Mutex<Vec<Arc<ProviderSeries>>>,
}

/// The metrics of one provider, which are looked up once.
struct ProviderSeries {
    provider: LabelValue,
    succeeded: OnceLock<Histogram>,
    first_chunk: OnceLock<Histogram>,
    input_tokens: OnceLock<Histogram>,
    output_tokens: OnceLock<Histogram>,
}

impl ModelSeries {
    pub(super) fn new(model: LabelValue) -> Self {
        Self {
            calls: CallSeries::new(model),
            input_tokens: OnceLock::new(),
            output_tokens: OnceLock::new(),
            providers: Mutex::default(),
        }
    }

    /// Returns the metrics of a provider, which has this name or, if there are too many names, another one.
    fn provider(&self, name: &str, values: &SeriesByLabel<LabelValue>) -> Arc<ProviderSeries> {
        let mut providers = self.providers.lock_unpoisoned();
        let find = |providers: &[Arc<ProviderSeries>], name: &str| {
            providers.iter().find(|series| series.provider.as_str() == name).cloned()
        };
        if let Some(series) = find(&providers, name) {
            return series;
        }
        let name = values.get(name, |value| value);
        find(&providers, name.as_str()).unwrap_or_else(|| {
            let series = Arc::new(ProviderSeries::new(LabelValue::clone(&name)));
            providers.push(series.clone());
            series
        })
    }
}

impl ProviderSeries {
    fn new(provider: LabelValue) -> Self {
        Self {
            provider,
            succeeded: OnceLock::new(),
            first_chunk: OnceLock::new(),
            input_tokens: OnceLock::new(),
            output_tokens: OnceLock::new(),
        }
    }
}

impl ModelCalls {
    /// Registers the metrics of the conventions in `plain`, and all others in `prefixed`.
    pub(super) fn new(plain: &mut Registry, prefixed: &mut Registry) -> Self {
        let duration = Histograms::<4>::new_with_constructor(seconds);
        let first_chunk = Histograms::<3>::new_with_constructor(seconds);
        let tokens = Histograms::<4>::new_with_constructor(tokens);
        let retries = Family::<[(&'static str, LabelValue); 2], Counter>::default();
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
        Self { duration, first_chunk, tokens, retries, providers: SeriesByLabel::default() }
    }

    /// Counts a call that has ended.
    pub(super) fn count(&self, model: &ModelSeries, span: &SpanData) {
        let provider = span.get("gen_ai.provider.name").and_then(AttributeValue::as_str).unwrap_or_default();
        let series = model.provider(provider, &self.providers);
        let labels = || {
            [
                ("gen_ai_operation_name", LabelValue::from(span.operation.name().unwrap_or_default())),
                ("gen_ai_provider_name", series.provider.clone()),
                ("gen_ai_request_model", model.calls.name.clone()),
            ]
        };
        let with = |key, value: &'static str| {
            let [operation, provider, model] = labels();
            [operation, provider, model, (key, LabelValue::from(value))]
        };
        let duration = |error| self.duration.get_or_create(&with("error_type", error)).clone();
        let seconds = span.duration.as_secs_f64();
        match error_label(span) {
            "" => series.succeeded.get_or_init(|| duration("")).observe(seconds),
            error => duration(error).observe(seconds),
        }
        if let Some(AttributeValue::Number(seconds)) = span.get("gen_ai.response.time_to_first_chunk") {
            let first_chunk = || self.first_chunk.get_or_create(&labels()).clone();
            series.first_chunk.get_or_init(first_chunk).observe(*seconds);
        }
        for (kind, attribute, histogram) in [
            ("input", "gen_ai.usage.input_tokens", &series.input_tokens),
            ("output", "gen_ai.usage.output_tokens", &series.output_tokens),
        ] {
            if let Some(tokens) = span.get(attribute).and_then(AttributeValue::as_u64) {
                let new = || self.tokens.get_or_create(&with("gen_ai_token_type", kind)).clone();
                histogram.get_or_init(new).observe(tokens as f64);
            }
        }
        if let Some(retries) = span.get("hatchery.model.retries").and_then(AttributeValue::as_u64) {
            let labels = [("provider", series.provider.clone()), ("model", model.calls.name.clone())];
            self.retries.get_or_create(&labels).inc_by(retries);
        }
    }
}
