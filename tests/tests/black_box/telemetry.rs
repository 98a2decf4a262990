//! Telemetry that a host exports: spans over OTLP, and metrics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::http::{self, HeaderMap};
use axum::response::IntoResponse;
use axum::routing::post;
use hatchery_test_services::serve_http;
use hatchery_tests::host::message;
use hatchery_tests::{Folder, Host, paths};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use serde_json::{Value, json};

use crate::cli::hatchery_with;
use crate::traces::Trace;

/// A collector that keeps what it gets.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(HeaderMap, ExportTraceServiceRequest)>>>);

impl Collector {
    /// Starts the collector, and returns its URL.
    async fn start(&self) -> String {
        let requests = self.0.clone();
        let export = post(async move |headers: HeaderMap, body: Bytes| match ExportTraceServiceRequest::decode(body) {
            Ok(request) => {
                requests.lock().unwrap_or_else(PoisonError::into_inner).push((headers, request));
                http::StatusCode::OK
            }
            Err(_) => http::StatusCode::BAD_REQUEST,
        });
        serve_http(Router::new().route("/v1/traces", export)).await
    }

    fn requests(&self) -> Vec<(HeaderMap, ExportTraceServiceRequest)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.requests().into_iter().flat_map(|(_, request)| request.resource_spans);
        requests.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    fn span(&self, name: &str) -> Result<Span> {
        let spans = self.spans();
        let names: Vec<_> = spans.iter().map(|span| span.name.clone()).collect();
        spans.into_iter().find(|span| span.name == name).with_context(|| format!("{name} in {names:?}"))
    }
}

/// Returns the text of an attribute.
fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?;
    match value.value.as_ref()? {
        AnyValue::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Serves the samples with an exporter and these variables, sends a message to `dice` and stops the host.
async fn run_and_stop(url: &str, variables: &[(&str, &str)], headers: &[(&str, &str)]) -> Result<()> {
    let folder = Folder::with_samples()?;
    let environment: Vec<_> = variables.iter().copied().chain([("OTEL_EXPORTER_OTLP_ENDPOINT", url)]).collect();
    let host = Host::serve_with_environment(&folder, &environment).await?;
    host.create_session("dice", "s1").await?;
    let request = host.request(reqwest::Method::POST, "/run").json(&message("dice", "s1", "Roll a die with 20 sides"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    host.send(request).await?.json(200)?;
    ensure!(host.stop().await?, "the host did not stop as it should");
    Ok(())
}

#[tokio::test]
async fn spans_are_exported_over_otlp_at_the_latest_when_the_host_stops() -> Result<()> {
    let collector = Collector::default();
    let url = collector.start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=s%3Dcret"),
        ("OTEL_SERVICE_NAME", "my-agents"),
        // The variable of traces counts.
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
    ];
    let parent = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")];
    run_and_stop(&url, &variables, &parent).await?;
    let requests = collector.requests();
    let (headers, request) = requests.first().context("a request")?;
    assert_eq!(headers["x-api-key"], "s=cret");
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let resource = request.resource_spans[0].resource.as_ref().context("a resource")?;
    assert_eq!(text(&resource.attributes, "service.name"), Some("my-agents"));

    let (run, agent, call) =
        (collector.span("invocation")?, collector.span("invoke_agent dice")?, collector.span("call_llm")?);
    let (tool, guest) = (collector.span("execute_tool roll_die")?, collector.span("call_guest dice")?);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        (&*hex(&run.trace_id), &*hex(&run.parent_span_id)),
        ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    );
    assert!(collector.spans().iter().all(|span| span.trace_id == run.trace_id));
    assert_eq!((&agent.parent_span_id, &call.parent_span_id), (&run.span_id, &agent.span_id));
    assert_eq!(tool.parent_span_id, agent.span_id);
    assert!(
        run.start_time_unix_nano <= guest.start_time_unix_nano && guest.end_time_unix_nano <= run.end_time_unix_nano
    );
    assert_eq!(text(&call.attributes, "gen_ai.operation.name"), Some("generate_content"));
    assert_eq!(text(&tool.attributes, "gen_ai.tool.name"), Some("roll_die"));
    for span in collector.spans() {
        for key in ["gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response", "gen_ai.tool.call.arguments"] {
            assert_eq!(text(&span.attributes, key), None, "what is sent to models is private");
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_sent_to_models_is_exported_only_on_request() -> Result<()> {
    let collector = Collector::default();
    let url = collector.start().await;
    let variables = [
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
        ("OTEL_RESOURCE_ATTRIBUTES", "peer.service.name=other"),
    ];
    run_and_stop(&url, &variables, &[]).await?;
    let call = collector.span("call_llm")?;
    let request = text(&call.attributes, "gcp.vertex.agent.llm_request").context("the request")?;
    assert!(request.contains("Roll a die with 20 sides"), "{request}");
    let tool = collector.span("execute_tool roll_die")?;
    assert_eq!(text(&tool.attributes, "gen_ai.tool.call.arguments"), Some("{\"sides\":20}"));
    let resource = collector.requests()[0].1.resource_spans[0].resource.clone().context("a resource")?;
    assert_eq!(text(&resource.attributes, "service.name"), Some("hatchery"), "the default");
    Ok(())
}

#[tokio::test]
async fn runs_that_are_not_sampled_are_not_exported() -> Result<()> {
    let collector = Collector::default();
    let url = collector.start().await;
    run_and_stop(&url, &[("OTEL_TRACES_SAMPLER", "always_off")], &[]).await?;
    let unsampled = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")];
    run_and_stop(&url, &[], &unsampled).await?;
    run_and_stop(&url, &[("OTEL_TRACES_EXPORTER", "none")], &[]).await?;
    run_and_stop(&url, &[("OTEL_SDK_DISABLED", "true")], &[]).await?;
    assert!(collector.requests().is_empty(), "{:?}", collector.requests());
    Ok(())
}

#[tokio::test]
async fn a_failed_run_is_exported_with_its_code_and_its_words_only_on_request() -> Result<()> {
    for captures in ["false", "true"] {
        fail_and_stop(captures).await?;
    }
    Ok(())
}

/// Checks the exported spans of a failed run, with and without content.
async fn fail_and_stop(captures: &str) -> Result<()> {
    let collector = Collector::default();
    let url = collector.start().await;
    let folder = Folder::empty()?;
    folder.write("broken/root_agent.yaml", "name: broken\nmodel: scripted:broken/script.yaml\ninstruction: Fail.\n")?;
    folder.write("broken/script.yaml", "turns:\n  - error: {code: 400, message: no luck}\n")?;
    let host = {
        let capture = ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", captures);
        Host::serve_with_environment(&folder, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url), capture]).await?
    };
    host.create_session("broken", "s1").await?;
    host.post("/run", &message("broken", "s1", "Hi")).await?.error(502, "MODEL_BAD_REQUEST")?;
    let metrics = host.get("/metrics").await?;
    ensure!(
        metrics.text.contains("hatchery_runs_total{app=\"broken\",error=\"MODEL_BAD_REQUEST\"} 1"),
        "{}",
        metrics.text
    );
    ensure!(host.stop().await?, "the host did not stop as it should");
    for name in ["invocation", "invoke_agent broken", "call_llm"] {
        let span = collector.span(name)?;
        let status = span.status.as_ref().context("a status")?;
        assert_eq!(status.code(), StatusCode::Error, "{name}");
        let message = text(&span.attributes, "error.message").unwrap_or_default();
        for words in [&*status.message, message] {
            assert_eq!(words.contains("no luck"), captures == "true", "{status:?} {message}");
        }
        assert_eq!(text(&span.attributes, "error.type"), Some("MODEL_BAD_REQUEST"), "{name}");
    }
    Ok(())
}

/// Starts a server of the Gemini API that is overloaded, then limits the rate, then answers. Returns its URL.
async fn start_busy_provider() -> Result<String> {
    let requests = Arc::new(AtomicUsize::new(0));
    let answer = async move || match requests.fetch_add(1, Ordering::Relaxed) {
        0 => (http::StatusCode::SERVICE_UNAVAILABLE, json!({"error": {"message": "s3cret load"}}).to_string())
            .into_response(),
        1 => (
            http::StatusCode::TOO_MANY_REQUESTS,
            [("retry-after", "0")],
            json!({"error": {"message": "s3cret rate"}}).to_string(),
        )
            .into_response(),
        _ => {
            let content = json!({"role": "model", "parts": [{"text": "Hello."}]});
            let chunk = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
            ([("content-type", "text/event-stream")], format!("data: {chunk}\n\n")).into_response()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
    Ok(url)
}

#[tokio::test]
async fn each_attempt_of_a_model_call_is_in_the_trace_and_is_exported() -> Result<()> {
    let collector = Collector::default();
    let (collector_url, provider_url) = (collector.start().await, start_busy_provider().await?);
    let folder = Folder::empty()?;
    folder.write(
        "asks/root_agent.yaml",
        "name: asks\nmodel: gemini-2.5-flash\ninstruction: Answer.\ngenerate_content_config:\n  \
         httpOptions: {retryOptions: {initialDelay: 0.01}}\n",
    )?;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector_url),
        ("GOOGLE_GEMINI_BASE_URL", &*provider_url),
        ("GOOGLE_API_KEY", "k"),
    ];
    let host = Host::serve_with_environment(&folder, &environment).await?;
    host.create_session("asks", "s1").await?;
    let mut request = message("asks", "s1", "Hi");
    request["streaming"] = true.into();
    let answer = host.post("/run_sse", &request).await?;
    ensure!(answer.text.contains("Hello."), "{}", answer.text);

    let trace = Trace::read(&host, "asks", "s1").await?;
    let call = trace.span("call_llm")?;
    assert_eq!(call["attributes"]["hatchery.model.retries"], 2);
    let mut delays = Vec::new();
    for (number, status, category, code) in [
        (1, 503, "SERVER_ERROR".into(), "MODEL_SERVER_ERROR".into()),
        (2, 429, "RATE_LIMITED".into(), "MODEL_RATE_LIMITED".into()),
        (3, 200, Value::Null, Value::Null),
    ] {
        let attempt = trace.span(&format!("model_attempt {number}"))?;
        assert_eq!(attempt["parent_span_id"], call["span_id"]);
        let attributes = &attempt["attributes"];
        assert_eq!(attributes["hatchery.model.attempt"], number);
        assert_eq!(attributes["http.response.status_code"], status);
        assert_eq!((&attributes["hatchery.model.error_category"], &attributes["error.type"]), (&category, &code));
        assert_eq!(attributes["gen_ai.request.model"], "gemini-2.5-flash");
        delays.push(attributes["hatchery.model.retry_delay"].as_f64());
    }
    let [Some(backoff), retry_after, None] = delays.as_slice() else { anyhow::bail!("{delays:?}") };
    ensure!((0.01..=0.02).contains(backoff), "the first delay, with its jitter: {backoff}");
    assert_eq!(*retry_after, Some(0.0), "the time of Retry-After");
    let words = &trace.span("model_attempt 1")?["attributes"]["error.message"];
    assert_eq!(words, "model `gemini-2.5-flash`: Gemini answered HTTP 503: s3cret load");

    ensure!(host.stop().await?, "the host did not stop as it should");
    let parent = collector.span("call_llm")?;
    for (number, code) in [(1, Some("MODEL_SERVER_ERROR")), (2, Some("MODEL_RATE_LIMITED")), (3, None)] {
        let attempt = collector.span(&format!("model_attempt {number}"))?;
        assert_eq!((&attempt.parent_span_id, attempt.kind()), (&parent.span_id, SpanKind::Client));
        assert_eq!(text(&attempt.attributes, "error.type"), code);
        assert_eq!(text(&attempt.attributes, "error.message"), None, "errors may repeat content");
        assert_eq!(text(&attempt.attributes, "gen_ai.operation.name"), None, "the call is counted once");
    }
    Ok(())
}

#[tokio::test]
async fn a_host_does_not_start_with_variables_that_it_cannot_follow() -> Result<()> {
    let folder = Folder::with_samples()?;
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
    for (variable, value, message) in [
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "grpc",
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported: set it to http/protobuf, and the endpoint to the collector's \
             port for HTTP, usually 4318",
        ),
        ("OTEL_TRACES_SAMPLER", "xray", "OTEL_TRACES_SAMPLER=xray is not supported: set it to always_on"),
        (
            "OTEL_TRACES_EXPORTER",
            "otlp,console",
            "OTEL_TRACES_EXPORTER=otlp,console is not supported: set it to otlp, or to none to export nothing",
        ),
        (
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            "10s",
            "OTEL_EXPORTER_OTLP_TIMEOUT=10s is not supported: set it to a whole number, or leave it out",
        ),
    ] {
        let output =
            hatchery_with(&folder.served(), &["serve", ".", "--port", "0"], &[endpoint, (variable, value)]).await?;
        ensure!(!output.success && output.stderr.contains(message), "{}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn metrics_count_runs_models_tools_and_components() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    host.create_session("dice", "s1").await?;
    host.run("dice", "s1", "Roll a die with 20 sides").await?;
    let answer = host.get("/metrics").await?;
    let value = |series: &str| {
        let line = answer.text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.with_context(|| format!("{series} in {}", answer.text))
    };
    assert_eq!(value("hatchery_runs_total{app=\"dice\",error=\"\"}")?, "1");
    assert_eq!(value("hatchery_tool_calls_total{tool=\"roll_die\",error=\"\"}")?, "1");
    assert_eq!(value("hatchery_run_duration_seconds_bucket{le=\"+Inf\",app=\"dice\"}")?, "1");
    assert!(value("hatchery_component_calls_total{component=\"dice\",error=\"\"}")?.parse::<u32>()? > 0);
    assert!(value("hatchery_run_time_seconds_total{app=\"dice\",kind=\"guest_cpu\"}")?.parse::<f64>()? > 0.0);
    assert!(answer.text.contains("hatchery_model_tokens_total{model="), "{}", answer.text);
    assert!(value("hatchery_components")?.parse::<u32>()? > 3);
    assert_eq!(value("hatchery_active_runs")?, "0");
    Ok(())
}

#[tokio::test]
async fn a_trace_goes_on_in_the_host_that_is_the_mcp_server() -> Result<()> {
    let collector = Collector::default();
    let collector_url = collector.start().await;
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector_url)];
    let (server_folder, folder) = (Folder::empty()?, Folder::empty()?);
    server_folder.put("greeter.wasm", paths::component("greeter")?)?;
    let grants = "components: { greeter: { grants: { state: { write: [\"user:name\"] } } } }";
    server_folder.write_operator_config(grants)?;
    let server = Host::serve_with_environment(&server_folder, &environment).await?;
    let servers = json!({"greetings": {"url": format!("{}/mcp", server.url)}});
    folder.write_operator_config(&json!({"mcp": {"servers": servers}}).to_string())?;
    let agent = "name: caller\nmodel: scripted:caller/answers.yaml\ninstruction: Greet.\ntools: [{ name: \"mcp:greetings\" }]\n";
    folder.write("caller/root_agent.yaml", agent)?;
    let script = "turns:\n  - when: { tool: run_greeter }\n    reply: Greeted.\n  \
                  - reply: [{ call: { name: run_greeter, args: { message: My name is Ada. } } }]\n";
    folder.write("caller/answers.yaml", script)?;
    let host = Host::serve_with_environment(&folder, &environment).await?;
    host.wait_until("the server lists its tools", |components| {
        components.pointer("/mcpServers/0/state") == Some(&json!("ready"))
    })
    .await?;
    host.ask("caller", "s", "Greet me").await?;
    ensure!(host.stop().await? && server.stop().await?, "a host did not stop as it should");
    let (tool, agent) = (collector.span("execute_tool run_greeter")?, collector.span("invoke_agent greeter")?);
    assert_eq!(tool.trace_id, agent.trace_id);
    let run = collector.spans().into_iter().find(|span| span.span_id == agent.parent_span_id).context("a run")?;
    assert_eq!((&*run.name, &run.parent_span_id), ("invocation", &tool.span_id));
    Ok(())
}

#[tokio::test]
async fn the_runs_of_an_evaluation_are_exported_with_what_components_log() -> Result<()> {
    let collector = Collector::default();
    let url = collector.start().await;
    let folder = Folder::with_samples()?;
    let set = json!({
        "eval_set_id": "hello",
        "eval_cases": [{
            "eval_id": "hello",
            "conversation": [{
                "user_content": {"role": "user", "parts": [{"text": "Hello"}]},
                "final_response": {"role": "model", "parts": [{"text": "Hello"}]},
            }],
        }],
    });
    folder.write("greeter/hello.evalset.json", set.to_string())?;
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")];
    let output = hatchery_with(&folder.served(), &["eval", "greeter", "hello"], &variables).await?;
    ensure!(collector.span("invocation").is_ok(), "{}{}", output.stdout, output.stderr);
    let logs: Vec<_> = collector.spans().into_iter().flat_map(|span| span.events).collect();
    let [line] = logs.as_slice() else { anyhow::bail!("one line: {logs:?}") };
    assert_eq!((line.name.as_str(), text(&line.attributes, "log.severity")), ("log", Some("info")));
    assert_eq!(text(&line.attributes, "log.message"), Some("greeted visits=1"));
    Ok(())
}
