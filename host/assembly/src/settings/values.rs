//! The values of settings with a fixed key. The fields of a section are listed, so that a new one cannot be forgotten.

use std::collections::BTreeMap;
use std::time::Duration;

use hatchery_registry::SignaturePolicy;
use hatchery_stores::Quota;
use hatchery_stores::quotas::Unit;
use hatchery_wasm::limits::{Limits, units};
use hatchery_wasm::{CompileLimits, HotReload, InstanceSettings};
use serde_json::Value;

use crate::byte_size::ByteSize;
use crate::config::{
    AuditConfig, Config, DurabilityConfig, MemorySearchConfig, RetentionConfig, ServerConfig, without_credentials,
};

type Values = Vec<(&'static str, Value)>;

/// Returns the values by key.
pub(super) fn by_key(config: &Config) -> BTreeMap<String, Value> {
    let sections = [
        ("server", server(&config.server)),
        ("limits", Limits::default().with(&config.limits).values()),
        ("instances", instances(&config.instances)),
        ("compile", compile(&config.compile)),
        ("hot_reload", hot_reload(&config.hot_reload)),
        ("memory", memory(&config.memory)),
        ("retention", retention(config.retention)),
        ("audit", audit(&config.audit)),
        ("registry", vec![("signatures", signatures(config.registry.signatures))]),
        ("models", config.models.base_urls().map(|(_, key, url)| (key, without_credentials(url).into())).collect()),
        ("prices", vec![("currency", config.prices.currency.clone().into())]),
    ];
    let sections = sections
        .into_iter()
        .flat_map(|(section, values)| values.into_iter().map(move |(key, value)| (format!("{section}.{key}"), value)));
    let quotas = config.app_quotas().default;
    let quotas = Quota::all().map(|quota| {
        let value: Value = match quota.unit() {
            Unit::Count => quotas.get(quota).into(),
            Unit::Bytes => bytes(quotas.get(quota)),
        };
        (quota.key().to_owned(), value)
    });
    let services = [
        ("session_service", &config.session_service),
        ("artifact_service", &config.artifact_service),
        ("memory_service", &config.memory_service),
    ];
    let services =
        services.into_iter().filter_map(|(key, uri)| Some((key.to_owned(), without_credentials(uri.as_ref()?).into())));
    sections.chain(quotas).chain(services).chain([("durability".to_owned(), durability(config.durability))]).collect()
}

fn server(config: &ServerConfig) -> Values {
    let ServerConfig {
        allowed_hosts,
        base_path,
        // Their keys are reported without a value.
        cors: _,
        auth: _,
        tls: _,
        body_limit,
        small_body_limit,
        upload_limit,
        body_memory,
        body_timeout,
        write_timeout,
        max_connections,
        max_connections_per_peer,
        max_concurrent_runs,
        turn_lease,
        live_idle_timeout,
        allow_import,
        triggers,
        max_concurrent_triggers,
        secret_file,
        // Reported with their defaults, which depend on other settings.
        cancel_on_disconnect: _,
        dev_ui: _,
        drain_timeout,
        // These cannot be set.
        dev_ui_folder: _,
        head_timeout: _,
        body_idle_timeout: _,
        min_body_rate: _,
        keep_alive: _,
        trigger_retry_delay: _,
    } = config;
    let secret_file = secret_file.as_ref().map(|file| ("secret_file", file.display().to_string().into()));
    let values = vec![
        ("allowed_hosts", allowed_hosts.clone().into()),
        ("body_limit", size(*body_limit)),
        ("small_body_limit", size(*small_body_limit)),
        ("upload_limit", size(*upload_limit)),
        ("body_memory", size(*body_memory)),
        ("body_timeout", time(*body_timeout)),
        ("write_timeout", time(*write_timeout)),
        ("max_connections", (*max_connections).into()),
        ("max_connections_per_peer", (*max_connections_per_peer).into()),
        ("max_concurrent_runs", (*max_concurrent_runs).into()),
        ("turn_lease", time(*turn_lease)),
        ("live_idle_timeout", time(*live_idle_timeout)),
        ("cancel_on_disconnect", config.cancel_on_disconnect().into()),
        ("allow_import", (*allow_import).into()),
        ("triggers", triggers.iter().map(|source| source.label()).collect::<Vec<_>>().into()),
        ("max_concurrent_triggers", max_concurrent_triggers.get().into()),
        ("dev_ui", config.dev_ui().label().into()),
        ("drain_timeout", time(*drain_timeout)),
    ];
    let base_path = base_path.as_ref().map(|path| ("base_path", path.as_str().into()));
    values.into_iter().chain(base_path).chain(secret_file).collect()
}

fn instances(settings: &InstanceSettings) -> Values {
    let InstanceSettings { max, queue_timeout, max_queued, memory: _, run_memory: _ } = settings;
    let options = settings.options();
    vec![
        ("max", max.get().into()),
        ("queue_timeout", time(*queue_timeout)),
        ("max_queued", (*max_queued).into()),
        ("memory", bytes(options.memory)),
        ("run_memory", bytes(options.run_memory)),
    ]
}

fn compile(limits: &CompileLimits) -> Values {
    let CompileLimits { time: cpu, wall, memory, threads, processes, max_file_size, max_function_size, max_functions } =
        limits;
    vec![
        ("time", time(*cpu)),
        ("wall", time(*wall)),
        ("memory", bytes(*memory)),
        ("threads", threads.get().into()),
        ("processes", processes.get().into()),
        ("max_file_size", bytes(*max_file_size)),
        ("max_function_size", bytes(*max_function_size)),
        ("max_functions", (*max_functions).into()),
    ]
}

fn hot_reload(settings: &HotReload) -> Values {
    let HotReload { drain_timeout, keep } = settings;
    vec![("drain_timeout", time(*drain_timeout)), ("keep", (*keep).into())]
}

fn memory(config: &MemorySearchConfig) -> Values {
    let MemorySearchConfig { embedder, min_similarity } = config;
    let embedder = embedder.as_ref().map(|name| ("embedder", name.clone().into()));
    embedder.into_iter().chain(min_similarity.map(|similarity| ("min_similarity", similarity.into()))).collect()
}

fn retention(config: RetentionConfig) -> Values {
    let RetentionConfig { max_idle_days, user_sessions, keep_artifacts } = config;
    let values = [("max_idle_days", max_idle_days.map(u64::from)), ("user_sessions", user_sessions)];
    let values = values.into_iter().map(|(key, value)| (key, value.map_or_else(|| "none".into(), Value::from)));
    values.chain([("keep_artifacts", keep_artifacts.into())]).collect()
}

fn audit(config: &AuditConfig) -> Values {
    let AuditConfig { enabled, file, max_size, max_backups } = config;
    let file = file.as_ref().map(|file| ("file", file.display().to_string().into()));
    let values =
        [("enabled", (*enabled).into()), ("max_size", size(*max_size)), ("max_backups", (*max_backups).into())];
    values.into_iter().chain(file).collect()
}

fn signatures(policy: SignaturePolicy) -> Value {
    match policy {
        SignaturePolicy::Off => "off",
        SignaturePolicy::Warn => "warn",
        SignaturePolicy::Require => "require",
    }
    .into()
}

fn durability(durability: DurabilityConfig) -> Value {
    match durability {
        DurabilityConfig::Process => "process",
        DurabilityConfig::Power => "power",
    }
    .into()
}

fn size(size: ByteSize) -> Value {
    bytes(u64::try_from(size.bytes()).unwrap_or(u64::MAX))
}

fn bytes(count: u64) -> Value {
    units::format_size(count).into()
}

fn time(time: Duration) -> Value {
    units::format_duration(time).into()
}
