//! Metrics of runs in the text format of OpenMetrics, which Prometheus reads. They are counted from the spans of runs.

mod gen_ai;
mod label_values;

use std::fmt;
use std::sync::{Arc, OnceLock};

use hatchery_core::{SpanData, SpanExporter, SpanOperation, TimeKind, TraceParent};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use self::gen_ai::{ModelCalls, ModelSeries};
use self::label_values::{LabelValue, SeriesByLabel};

/// The codes of the host itself, sorted. Components choose their own ones, which are counted together.
const ERROR_CODES: [&str; 73] = [
    "A2A_BAD_RESPONSE",
    "A2A_CARD",
    "A2A_CONFIGURATION",
    "A2A_NOT_ALLOWED",
    "A2A_REFUSED",
    "A2A_TASK_FAILED",
    "A2A_TIMEOUT",
    "A2A_TOO_LARGE",
    "A2A_UNREACHABLE",
    "AGENT_FAILED",
    "BAD_INPUT",
    "CALLBACK_FAILED",
    "CANCELLED",
    "CODE_FAILED",
    "COMPONENT_BUSY",
    "COMPONENT_CPU",
    "COMPONENT_FAILED",
    "COMPONENT_LIMIT",
    "COMPONENT_MEMORY",
    "COMPONENT_REPLACED",
    "COMPONENT_TIMEOUT",
    "COMPONENT_TRAPPED",
    "CREDENTIAL_FAILED",
    "CYCLE",
    "DENIED",
    "EVENT_EXISTS",
    "HTTP_FAILED",
    "INSTRUCTION_INCOMPLETE",
    "INSTRUCTION_TOO_LARGE",
    "INTERNAL",
    "INTERRUPTED",
    "INVALID_EVENT",
    "INVALID_MESSAGE",
    "INVALID_NAME",
    "INVALID_TOOLS",
    "LIMIT_REACHED",
    "LIVE_CLOSED",
    "MCP_UNAVAILABLE",
    "MODEL_AUTH",
    "MODEL_BAD_REQUEST",
    "MODEL_BAD_RESPONSE",
    "MODEL_MISSING",
    "MODEL_NETWORK",
    "MODEL_RATE_LIMITED",
    "MODEL_SERVER_ERROR",
    "MODEL_TIMEOUT",
    "MODEL_UNKNOWN",
    "NOT_AN_AGENT",
    "NOT_A_TOOL",
    "NOT_FOUND",
    "NO_APPS",
    "NO_SESSION",
    "OPENAPI_UNAVAILABLE",
    "OUTPUT_SCHEMA_UNUSABLE",
    "PLUGIN_MISSING",
    "QUOTA_EXCEEDED",
    "READER_TOO_SLOW",
    "READ_ONLY",
    "REFUSED",
    "REPLAY_MISMATCH",
    "RUN_GIVEN_UP",
    "SESSION_EXISTS",
    "SESSION_IN_USE",
    "SESSION_NOT_FOUND",
    "STOPPED",
    "STORE_BUSY",
    "STORE_FAILED",
    "STORE_FULL",
    "TOOL_FAILED",
    "TOOL_NAME_CLASH",
    "TRANSFER_NOT_ALLOWED",
    "TURN_TAKEN_OVER",
    "UNREADABLE_EVENT",
];

/// The value of the label `error` for the codes of components.
const COMPONENT_ERROR: &str = "COMPONENT_ERROR";

/// The value of the label `error` for errors of providers.
const MODEL_ERROR: &str = "MODEL_ERROR";

/// Upper bounds of the buckets of durations in seconds, from a callback to a research agent.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0];

/// The metrics of a host. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    /// Metrics whose names have no prefix.
    conventional: Registry,
    model_calls: ModelCalls,
    runs: Calls,
    run_series: SeriesByLabel<RunSeries>,
    models: Calls,
    model_series: SeriesByLabel<ModelSeries>,
    /// Models that code has chosen.
    code_model_series: SeriesByLabel<ModelSeries>,
    tools: Calls,
    tool_series: SeriesByLabel<CallSeries>,
    components: Calls,
    component_series: SeriesByLabel<CallSeries>,
    tokens: Family<[(&'static str, LabelValue); 2], Counter>,
    run_time: Family<[(&'static str, LabelValue); 2], Seconds>,
}

/// A sum of seconds.
type Seconds = Counter<f64, std::sync::atomic::AtomicU64>;

/// A number that is read when the metrics are.
pub struct GaugeValue {
    /// The name without the prefix `hatchery_`.
    pub name: &'static str,
    /// The help text of the exposition.
    pub help: &'static str,
    /// The number now.
    pub value: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("hatchery");
        let (tokens, run_time) = (Family::default(), Family::default());
        registry.register("model_tokens", "Tokens of model calls", tokens.clone());
        registry.register_with_unit("run_time", "Where the time of runs went", Unit::Seconds, run_time.clone());
        let runs = Calls::new(
            &mut registry,
            "app",
            Description { name: "runs", help: "Runs that have ended" },
            Description { name: "run_duration", help: "Time of runs" },
        );
        let models = Calls::new(
            &mut registry,
            "model",
            Description { name: "model_calls", help: "Model calls that have ended" },
            Description { name: "model_call_duration", help: "Time of model calls" },
        );
        let tools = Calls::new(
            &mut registry,
            "tool",
            Description { name: "tool_calls", help: "Tool calls that have ended" },
            Description { name: "tool_call_duration", help: "Time of tool calls" },
        );
        let components = Calls::new(
            &mut registry,
            "component",
            Description { name: "component_calls", help: "Calls into components that have ended" },
            Description { name: "component_call_duration", help: "Time of calls into components" },
        );
        let mut conventional = Registry::default();
        let model_calls = ModelCalls::new(&mut conventional, &mut registry);
        Self(Arc::new(Inner {
            registry,
            conventional,
            model_calls,
            runs,
            run_series: SeriesByLabel::default(),
            models,
            model_series: SeriesByLabel::default(),
            code_model_series: SeriesByLabel::default(),
            tools,
            tool_series: SeriesByLabel::default(),
            components,
            component_series: SeriesByLabel::default(),
            tokens,
            run_time,
        }))
    }
}

impl Metrics {
    /// The media type of [`encode`](Self::encode).
    pub const CONTENT_TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// Returns all metrics as text, and these numbers.
    ///
    /// # Errors
    /// If the text cannot be written.
    pub fn encode(&self, gauges: impl IntoIterator<Item = GaugeValue>) -> Result<String, fmt::Error> {
        let mut now = Registry::with_prefix("hatchery");
        for GaugeValue { name, help, value } in gauges {
            now.register(name, help, ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)));
        }
        let mut text = String::new();
        encode_registry(&mut text, &self.0.registry)?;
        encode_registry(&mut text, &self.0.conventional)?;
        encode_registry(&mut text, &now)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

impl Inner {
    fn count_run(&self, span: &SpanData) {
        let app = self.run_series.get(&span.trace.session.app, RunSeries::new);
        self.runs.count(&app.calls, span);
        for (kind, total) in TimeKind::ALL.into_iter().zip(&app.times) {
            if let Some(time) = span.get(kind.attribute()).and_then(|time| time.as_u64()).filter(|time| *time > 0) {
                let total = total.get_or_init(|| {
                    let labels = [("app", app.calls.name.clone()), ("kind", LabelValue::from(kind.name()))];
                    self.run_time.get_or_create(&labels).clone()
                });
                total.inc_by(time as f64 / 1e9);
            }
        }
    }

    fn count_model_call(&self, span: &SpanData) {
        let model = span.get("gen_ai.request.model").and_then(|model| model.as_str()).unwrap_or_default();
        // Code may choose any name, and must not use up the label values of agents' models.
        let is_code = span.operation == SpanOperation::CodeModel;
        let series = if is_code { &self.code_model_series } else { &self.model_series };
        let model = series.get(model, ModelSeries::new);
        self.models.count(&model.calls, span);
        self.model_calls.count(&model, span);
        for (kind, attribute, total) in [
            ("input", "gen_ai.usage.input_tokens", &model.input_tokens),
            ("output", "gen_ai.usage.output_tokens", &model.output_tokens),
        ] {
            if let Some(tokens) = span.get(attribute).and_then(|tokens| tokens.as_u64()) {
                let total = total.get_or_init(|| {
                    let labels = [("model", model.calls.name.clone()), ("type", LabelValue::from(kind))];
                    self.tokens.get_or_create(&labels).clone()
                });
                total.inc_by(tokens);
            }
        }
    }
}

impl SpanExporter for Metrics {
    fn export(&self, span: &Arc<SpanData>) {
        let metrics = &*self.0;
        let series = |all: &SeriesByLabel<CallSeries>, key| {
            all.get(span.get(key).and_then(|value| value.as_str()).unwrap_or_default(), CallSeries::new)
        };
        match span.operation {
            SpanOperation::Run => metrics.count_run(span),
            SpanOperation::Model | SpanOperation::CodeModel => metrics.count_model_call(span),
            SpanOperation::Tool => metrics.tools.count(&series(&metrics.tool_series, "gen_ai.tool.name"), span),
            SpanOperation::Guest => {
                metrics.components.count(&series(&metrics.component_series, "hatchery.component"), span)
            }
            SpanOperation::Agent | SpanOperation::ModelAttempt | SpanOperation::Http => {}
        }
    }

    fn captures_content(&self) -> bool {
        false
    }

    /// Metrics are of no use to other services.
    fn is_sampled(&self, _: u128, _: Option<&TraceParent>) -> bool {
        false
    }
}

/// Durations by name.
type Durations = Family<[(&'static str, LabelValue); 1], Histogram, fn() -> Histogram>;

/// The name and the help text of a metric.
struct Description {
    name: &'static str,
    help: &'static str,
}

/// The number and the durations of calls by name.
struct Calls {
    label: &'static str,
    total: Family<[(&'static str, LabelValue); 2], Counter>,
    seconds: Durations,
}

impl Calls {
    fn new(registry: &mut Registry, label: &'static str, count: Description, duration: Description) -> Self {
        let total = Family::default();
        let seconds = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        registry.register(count.name, count.help, total.clone());
        registry.register_with_unit(duration.name, duration.help, Unit::Seconds, seconds.clone());
        Self { label, total, seconds }
    }

    /// Counts a call that has ended. Its error is empty if it did not fail.
    fn count(&self, series: &CallSeries, span: &SpanData) {
        let name = || (self.label, series.name.clone());
        let total =
            |error: &'static str| self.total.get_or_create(&[name(), ("error", LabelValue::from(error))]).clone();
        match error_label(span) {
            "" => series.succeeded.get_or_init(|| total("")).inc(),
            error => total(error).inc(),
        };
        let seconds = series.seconds.get_or_init(|| self.seconds.get_or_create(&[name()]).clone());
        seconds.observe(span.duration.as_secs_f64());
    }
}

/// The metrics of the calls with one name, which are looked up once.
struct CallSeries {
    name: LabelValue,
    succeeded: OnceLock<Counter>,
    seconds: OnceLock<Histogram>,
}

impl CallSeries {
    fn new(name: LabelValue) -> Self {
        Self { name, succeeded: OnceLock::new(), seconds: OnceLock::new() }
    }
}

/// The metrics of the runs of one app.
struct RunSeries {
    calls: CallSeries,
    /// In the order of [`TimeKind::ALL`].
    times: [OnceLock<Seconds>; TimeKind::ALL.len()],
}

impl RunSeries {
    fn new(app: LabelValue) -> Self {
        Self { calls: CallSeries::new(app), times: Default::default() }
    }
}

/// Returns the value of the label `error`; empty if the call has not failed.
fn error_label(span: &SpanData) -> &'static str {
    let Some(error) = &span.error else { return "" };
    match ERROR_CODES.binary_search(&error.code.as_str()) {
        Ok(index) => ERROR_CODES.get(index).copied().unwrap_or_default(),
        Err(_) if matches!(span.operation, SpanOperation::Model | SpanOperation::CodeModel) => MODEL_ERROR,
        Err(_) => COMPONENT_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{RunError, SessionKey, SpanContext};

    use super::*;

    fn trace(metrics: &Metrics, app: &str) -> SpanContext {
        SpanContext::new(Arc::new(metrics.clone()), SessionKey::new(app, "ada", "s"), "e-1", None)
    }

    fn tool(trace: &SpanContext, name: &str) -> hatchery_core::Span {
        let mut span = trace.start(SpanOperation::Tool, name);
        span.record(|data| data.set("gen_ai.tool.name", name.to_owned()));
        span
    }

    fn value<'a>(text: &'a str, series: &str) -> Option<&'a str> {
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
    }

    #[test]
    fn calls_tokens_and_errors_are_counted_by_name() {
        let metrics = Metrics::default();
        let trace = trace(&metrics, "dice");
        let mut run = trace.start(SpanOperation::Run, "");
        let mut call = run.context().start(SpanOperation::Model, "");
        call.record(|data| {
            data.set("gen_ai.request.model", "scripted");
            data.set("gen_ai.usage.input_tokens", 7_u64);
            data.set("gen_ai.provider.name", "anthropic");
            data.set("gen_ai.response.time_to_first_chunk", 0.3);
            data.set("hatchery.model.retries", 2_u64);
        });
        call.finish();
        tool(run.context(), "roll \"die\"").finish();
        run.set_error(&RunError::Cancelled);
        drop(run);
        let text = metrics.encode([GaugeValue { name: "components", help: "Components", value: 3 }]).unwrap();
        let call = "gen_ai_operation_name=\"generate_content\",gen_ai_provider_name=\"anthropic\",gen_ai_request_model=\"scripted\"";
        for (series, expected) in [
            ("hatchery_runs_total{app=\"dice\",error=\"CANCELLED\"}", "1"),
            ("hatchery_run_duration_seconds_count{app=\"dice\"}", "1"),
            ("hatchery_model_calls_total{model=\"scripted\",error=\"\"}", "1"),
            ("hatchery_model_tokens_total{model=\"scripted\",type=\"input\"}", "7"),
            ("hatchery_model_retries_total{provider=\"anthropic\",model=\"scripted\"}", "2"),
            (format!("gen_ai_client_operation_duration_seconds_count{{{call},error_type=\"\"}}").as_str(), "1"),
            (format!("gen_ai_client_operation_time_to_first_chunk_seconds_sum{{{call}}}").as_str(), "0.3"),
            (format!("gen_ai_client_operation_time_to_first_chunk_seconds_bucket{{le=\"0.32\",{call}}}").as_str(), "1"),
            (format!("gen_ai_client_token_usage_sum{{{call},gen_ai_token_type=\"input\"}}").as_str(), "7.0"),
            ("hatchery_tool_calls_total{tool=\"roll \\\"die\\\"\",error=\"\"}", "1"),
            ("hatchery_components", "3"),
        ] {
            assert_eq!(value(&text, series), Some(expected), "{series} in {text}");
        }
        assert!(value(&text, "hatchery_run_time_seconds_total{app=\"dice\",kind=\"tool\"}").is_some(), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn names_beyond_100_are_counted_together() {
        let metrics = Metrics::default();
        let trace = trace(&metrics, "dice");
        for number in 0..103 {
            tool(&trace, &number.to_string()).finish();
        }
        let text = metrics.encode([]).unwrap();
        assert_eq!(value(&text, "hatchery_tool_calls_total{tool=\"99\",error=\"\"}"), Some("1"));
        assert_eq!(value(&text, "hatchery_tool_calls_total{tool=\"other\",error=\"\"}"), Some("3"));
        assert_eq!(value(&text, "hatchery_tool_calls_total{tool=\"100\",error=\"\"}"), None);
    }

    #[test]
    fn a_name_of_more_than_200_bytes_is_cut() {
        let metrics = Metrics::default();
        let trace = trace(&metrics, "dice");
        for count in [100, 101, 10_000] {
            tool(&trace, &"ü".repeat(count)).finish();
        }
        let text = metrics.encode([]).unwrap();
        let series = format!("hatchery_tool_calls_total{{tool=\"{}\",error=\"\"}}", "ü".repeat(100));
        assert_eq!(value(&text, &series), Some("3"), "{text}");
        assert!(!text.contains(&"ü".repeat(101)));
    }

    #[test]
    fn codes_and_models_that_components_choose_use_up_no_values_of_others() {
        let metrics = Metrics::default();
        let trace = trace(&metrics, "dice");
        for number in 0..200 {
            let mut call = tool(&trace, "roll");
            call.fail(&format!("CODE_{number}"), || "it failed".into());
            call.finish();
            let mut call = trace.start(SpanOperation::CodeModel, "");
            call.record(|data| data.set("gen_ai.request.model", format!("ollama/{number}")));
            call.fail("SAFETY", || "blocked".into());
            call.finish();
        }
        for code in ["A2A_UNREACHABLE", "COMPONENT_TRAPPED", "DENIED", "INTERRUPTED"] {
            let mut call = tool(&trace, "roll");
            call.fail(code, || "it failed".into());
            call.finish();
        }
        let mut call = trace.start(SpanOperation::Model, "");
        call.record(|data| data.set("gen_ai.request.model", "scripted"));
        call.finish();
        let text = metrics.encode([]).unwrap();
        for (series, expected) in [
            ("hatchery_tool_calls_total{tool=\"roll\",error=\"COMPONENT_ERROR\"}", "200"),
            ("hatchery_tool_calls_total{tool=\"roll\",error=\"A2A_UNREACHABLE\"}", "1"),
            ("hatchery_tool_calls_total{tool=\"roll\",error=\"COMPONENT_TRAPPED\"}", "1"),
            ("hatchery_tool_calls_total{tool=\"roll\",error=\"DENIED\"}", "1"),
            ("hatchery_tool_calls_total{tool=\"roll\",error=\"INTERRUPTED\"}", "1"),
            ("hatchery_model_calls_total{model=\"ollama/99\",error=\"MODEL_ERROR\"}", "1"),
            ("hatchery_model_calls_total{model=\"other\",error=\"MODEL_ERROR\"}", "100"),
            ("hatchery_model_calls_total{model=\"scripted\",error=\"\"}", "1"),
        ] {
            assert_eq!(value(&text, series), Some(expected), "{series} in {text}");
        }
    }

    #[test]
    fn the_codes_of_the_host_are_sorted() {
        assert!(ERROR_CODES.is_sorted());
    }
}
