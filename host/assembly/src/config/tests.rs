//! Tests of parsing the configuration.

mod connections;
mod server;

use std::time::Duration;

use super::*;
use crate::byte_size::ByteSize;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("/srv/agents/hatchery.yaml")).map_err(|error| error.to_string())
}

#[test]
fn everything_is_optional() {
    assert_eq!(parse(""), Ok(Config::default()));
    assert_eq!(parse("# nothing\n"), Ok(Config::default()));
    assert_eq!(Config::load(Path::new("/nonexistent")).unwrap(), Config::default());
    assert_eq!(ServerConfig::default().body_limit, ByteSize(16 << 20));
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let config = parse("\u{feff}plugins: [logging]\napp_defaults: {max_llm_calls: 9}\n").unwrap();
    assert_eq!((config.plugins.len(), config.app_defaults.max_llm_calls), (1, Some(9)));
}

#[test]
fn a_full_file_is_read() {
    let config = parse(
        "session_service: postgres://db/x\n\
         memory_service: 'memory:'\n\
         models: {gemini_base_url: 'http://localhost:1'}\n\
         plugins:\n  - logging\n  - {name: kitchen/redact, args: {words: [oven]}}\n\
         app_defaults: {max_llm_calls: 9}\n\
         apps: {dice: {resumable: true}}\n\
         limits: {memory: 64 MiB}\n\
         components:\n  search: {config: {depth: 3}, limits: {memory: 1 MiB}}\n\
         server: {allowed_hosts: [agents.example], body_limit: 1 MiB, max_connections: 9, max_concurrent_runs: 3,\n    \
         cancel_on_disconnect: true, small_body_limit: 9 KiB, upload_limit: 2 MiB, body_memory: 2 GiB, body_timeout: 1min,\n    \
         write_timeout: 5s, max_connections_per_peer: 7, allow_import: true, turn_lease: 500ms,\n    \
         live_idle_timeout: 7s, secret_file: ../host.key, dev_ui: read, base_path: /agents/}\n",
    )
    .unwrap();
    assert_eq!(config.session_service.as_deref(), Some("postgres://db/x"));
    assert_eq!(config.models.gemini_base_url.as_deref(), Some("http://localhost:1"));
    assert_eq!(config.plugins.iter().map(|plugin| &*plugin.name).collect::<Vec<_>>(), ["logging", "kitchen/redact"]);
    assert_eq!(config.plugins[1].args["words"][0], "oven");
    assert_eq!((config.app_defaults.max_llm_calls, config.apps["dice"].resumable), (Some(9), Some(true)));
    assert_eq!(config.limits.memory, Some(64 << 20));
    assert_eq!(config.components["search"].config["depth"], 3);
    assert_eq!(config.components["search"].limits.memory, Some(1 << 20));
    assert_eq!(config.server.body_limit, ByteSize(1 << 20));
    assert_eq!(config.server.allowed_hosts, ["agents.example"]);
    assert_eq!(config.server.base_path.as_ref().map(BasePath::as_str), Some("/agents"));
    assert_eq!(config.server.max_connections, 9);
    assert_eq!(config.server.max_concurrent_runs, 3);
    assert_eq!((config.server.cancel_on_disconnect, config.server.allow_import), (Some(true), true));
    assert_eq!((config.server.dev_ui, config.server.dev_ui().label()), (Some(DevUi::Read), "read"));
    assert_eq!(config.server.secret_file.as_deref(), Some(Path::new("/srv/agents/../host.key")));
    assert_eq!((config.server.small_body_limit, config.server.body_memory), (ByteSize(9 << 10), ByteSize(2 << 30)));
    assert_eq!(config.server.upload_limit, ByteSize(2 << 20));
    assert_eq!(config.server.body_timeout, Duration::from_secs(60));
    assert_eq!(config.server.write_timeout, Duration::from_secs(5));
    assert_eq!(config.server.max_connections_per_peer, 7);
    assert_eq!(config.server.turn_lease, Duration::from_millis(500));
    assert_eq!(config.server.live_idle_timeout, Duration::from_secs(7));
}

#[test]
fn an_unknown_key_is_an_error_with_its_position() {
    let error = parse("session_service: 'memory:'\nserver:\n  body_limits: 3\n").unwrap_err();
    // `server` has too many keys to list.
    assert_eq!(error, "/srv/agents/hatchery.yaml:3:3: server: unknown field `body_limits`; did you mean `body_limit`?");
}

#[test]
fn a_wrong_value_is_an_error_with_its_position() {
    let error = parse("server:\n  body_limit: big\n").unwrap_err();
    assert!(error.starts_with("/srv/agents/hatchery.yaml:2:15: "), "{error}");
    assert!(error.contains("`big` is not a size"), "{error}");
}

#[test]
fn an_unknown_limit_is_an_error_with_its_position() {
    let error = parse("limits:\n  cpu: 1s\n  ram: 3\n").unwrap_err();
    assert!(error.starts_with("/srv/agents/hatchery.yaml:3:3: limits: unknown field `ram`"), "{error}");
}

#[test]
fn a_memory_in_bytes_that_was_meant_in_mebibytes_is_an_error_with_its_position() {
    for yaml in [
        "limits:\n  memory: 128\n",
        "components:\n  web: {limits: {memory: 128}}\n",
        "instances:\n  memory: 128\n",
        "instances:\n  run_memory: 128\n",
    ] {
        let error = parse(yaml).unwrap_err();
        assert!(error.starts_with("/srv/agents/hatchery.yaml:2:"), "{error}");
        let expected = "a memory of 128 B is less than one page, 64 KiB; write for example `128 MiB`";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn wrong_grants_are_an_error_with_their_position() {
    let error = |grant: &str| parse(&format!("components:\n  web:\n    grants:\n      {grant}\n")).unwrap_err();
    let unknown = error("model: [x]");
    let expected = "/srv/agents/hatchery.yaml:4:7: components.web.grants: unknown field `model`, expected one of ";
    assert!(unknown.starts_with(expected), "{unknown}");
    for (grant, expected) in [
        ("models: ['']", "a pattern must not be empty; `*` matches all names"),
        ("artifacts: all", "unknown variant `all`, expected `read` or `write`"),
        ("environment: {PORT: 8080}", "the value of a variable is a string, or `{from: VARIABLE OF THE HOST}`"),
        ("files: [{host: data, guest: data}]", "`data` is not an absolute path in the component, such as `/data`"),
        ("files: [{guest: /data}]", "missing field `host`"),
        ("clock: noon", "`noon` is neither `real` nor a time such as `2026-01-01T00:00:00Z`"),
        ("random: 7", "random numbers are `real` or `{seed: NUMBER}`"),
    ] {
        let error = error(grant);
        assert!(error.starts_with("/srv/agents/hatchery.yaml:4:") && error.contains(expected), "{error}");
    }
}

#[test]
fn examples_in_the_documentation_are_valid() {
    let blocks = include_str!("../../../../docs/security.md").split("```yaml\n").skip(1);
    let mut count = 0;
    for block in blocks.filter_map(|rest| rest.split("```").next()) {
        parse(block).unwrap();
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn settings_of_instances_and_hot_reload_have_units() {
    let config = parse(
        "instances: {max: 10, queue_timeout: 50ms, memory: 1GiB}\nhot_reload: {drain_timeout: 1min, keep: 0}\n\
         components: {python: {warm: {size: 2, idle: 30}}, rust: {}}\n",
    )
    .unwrap();
    let instances = &config.instances;
    assert_eq!((instances.max.get(), instances.queue_timeout), (10, Duration::from_millis(50)));
    assert_eq!(instances.max_queued, InstanceSettings::default().max_queued);
    let options = instances.options();
    assert_eq!((options.memory, options.run_memory), (1 << 30, 256 << 20));
    assert_eq!(config.hot_reload, HotReload { drain_timeout: Duration::from_secs(60), keep: 0 });
    let warm = config.components["python"].warm.as_ref().unwrap();
    assert_eq!((warm.size.get(), warm.max_calls.get(), warm.idle), (2, 1000, Duration::from_secs(30)));
    assert_eq!(config.components["rust"].warm, None);
    let error = parse("components:\n  python:\n    warm: {size: 0}\n").unwrap_err();
    assert!(
        error.contains("components.python.warm.size: invalid value: integer `0`, expected a whole number from 1 on"),
        "{error}"
    );
    let error = parse("hot_reload: {drain_timeout: soon}").unwrap_err();
    assert!(error.contains("hot_reload: `soon` is not a duration"), "{error}");
}

#[test]
fn a_key_of_an_earlier_version_is_an_error_with_the_new_key() {
    let error = parse("engine: {instances: 10}").unwrap_err();
    assert!(error.ends_with("; it is now `instances`, and its `compile` is a separate section"), "{error}");
    let error = parse("instances: {busy_wait: 5s}").unwrap_err();
    assert!(error.contains("unknown field `busy_wait`") && error.ends_with("; it is now `queue_timeout`"), "{error}");
}

#[test]
fn a_service_with_an_unknown_scheme_is_an_error() {
    let sessions = "`memory`, `sqlite`, `postgres`, `postgresql`, `firestore`, `agentengine`";
    let cases = [
        ("session_service: sqllite:x.db", format!("`sqllite`; available: {sessions}; did you mean `sqlite`?")),
        ("artifact_service: 'http://x'", "`http`; available: `memory`, `file`, `s3`, `gs`, `az`".to_owned()),
        ("memory_service: redis", format!("`redis`; available: {sessions}")),
    ];
    for (yaml, problem) in cases {
        let key = yaml.split(':').next().unwrap();
        let expected = format!("/srv/agents/hatchery.yaml: {key}: no service has the scheme {problem}");
        assert_eq!(parse(yaml).unwrap_err(), expected);
    }
    for (key, scheme) in [("session_service", "postgresql"), ("artifact_service", "az"), ("memory_service", "memory")] {
        assert!(parse(&format!("{key}: '{scheme}:'")).is_ok(), "{scheme}");
    }
}

#[test]
fn the_address_is_an_error_with_the_flag_for_it() {
    for (key, flag) in [("host: 0.0.0.0", "--host"), ("port: 9000", "--port")] {
        let error = parse(&format!("server: {{{key}}}")).unwrap_err();
        assert!(error.ends_with(&format!("`; `hatchery serve` has the flag `{flag}` for it")), "{error}");
    }
}

#[test]
fn an_unknown_setting_of_an_app_is_an_error_with_its_position() {
    let error = parse("apps:\n  dice:\n    max_calls: 3\n").unwrap_err();
    assert_eq!(
        error,
        "/srv/agents/hatchery.yaml:3:5: apps.dice: unknown field `max_calls`, expected one of `resumable`, `max_llm_calls`, \
         `max_tokens`, `max_events`, `max_run_bytes`, `max_rounds`, `max_model_retries`, `max_run_time`, `quotas`, \
         `save_input_blobs_as_artifacts`, `tool_execution`, `compaction`, `memory`"
    );
    let error = parse("app_defaults: {tool_execution: both}").unwrap_err();
    assert!(
        error.contains("app_defaults.tool_execution: unknown variant `both`, expected `parallel` or `sequential`"),
        "{error}"
    );
    let error = parse("app_defaults: {max_llm_calls: -1}").unwrap_err();
    assert!(
        error.contains("app_defaults.max_llm_calls: invalid type: integer `-1`, expected a whole number from 0 on"),
        "{error}"
    );
}

#[test]
fn wrong_settings_of_compaction_are_an_error_with_their_position() {
    let error = |settings: &str| parse(&format!("apps:\n  dice:\n    compaction:\n      {settings}\n")).unwrap_err();
    assert_eq!(
        error("interval: 3"),
        "/srv/agents/hatchery.yaml:4:7: apps.dice.compaction: `interval` requires `overlap`"
    );
    assert_eq!(
        error("{interval: 0, overlap: 1}"),
        "/srv/agents/hatchery.yaml:4:7: apps.dice.compaction: `interval` is 0; it must be at least 1"
    );
    assert_eq!(
        error("summarizer: gemini-2.5-flash"),
        "/srv/agents/hatchery.yaml:4:7: apps.dice.compaction: no strategy is set; set `interval` and `overlap`, or \
         `token_threshold` and `retention`, or both"
    );
    let unknown = error("every: 3");
    assert!(
        unknown.starts_with("/srv/agents/hatchery.yaml:4:7: apps.dice.compaction: unknown field `every`"),
        "{unknown}"
    );
    let wrong = parse("app_defaults: {compaction: often}").unwrap_err();
    assert!(wrong.contains("app_defaults.compaction: ") && wrong.contains("a mapping that says when"), "{wrong}");
}

#[test]
fn signature_settings_are_read() {
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let registry = parse(&format!("registry:\n  signatures: require\n  trusted_keys: [{key}]\n")).unwrap().registry;
    assert_eq!(registry.signatures, SignaturePolicy::Require);
    assert_eq!(registry.trusted_keys, [key.parse().unwrap()]);
    assert_eq!(parse("registry: {signatures: off}").unwrap().registry.signatures, SignaturePolicy::Off);
    assert_eq!(RegistryConfig::default().signatures, SignaturePolicy::Warn);
    let error = parse("registry: {signatures: require}").unwrap_err();
    assert!(error.starts_with("/srv/agents/hatchery.yaml: signatures are required, but no key is trusted"), "{error}");
    let bound = parse("components: {dice: {signed_as: die, signed_by: '0000000000000001'}}").unwrap_err();
    assert_eq!(
        bound,
        "/srv/agents/hatchery.yaml: components.dice.signed_by: the key 0000000000000001 is not trusted; add its public key to \
         `registry.trusted_keys` of hatchery.yaml"
    );
    let error = parse("components: {dice: {sha256: c0ffee}}").unwrap_err();
    assert!(error.contains("components.dice: `c0ffee` is not a digest; a digest is `sha256:` and 64"), "{error}");
    let error = parse("registry:\n  trusted_keys: [nobody]\n").unwrap_err();
    assert!(error.starts_with("/srv/agents/hatchery.yaml:2:"), "{error}");
    assert!(error.contains("registry.trusted_keys: nobody: not a minisign public key"), "{error}");
}

#[test]
fn the_audit_log_is_configurable_and_has_a_minimum_size() {
    let audit = parse("audit: {file: logs/audit.log, max_size: 1 MiB, max_backups: 2}").unwrap().audit;
    assert_eq!(audit.file.as_deref(), Some(Path::new("/srv/agents/logs/audit.log")));
    assert_eq!((audit.max_size, audit.max_backups, audit.enabled), (ByteSize(1 << 20), 2, true));
    assert_eq!(
        parse("audit: {max_size: 10}").unwrap_err(),
        "/srv/agents/hatchery.yaml: audit.max_size is 10 bytes; it must be at least 4 KiB (4096 bytes)"
    );
}

#[test]
fn a_file_cannot_declare_itself_trusted() {
    for text in ["authority: operator", "components: {a: {refusal: null}}"] {
        let error = parse(text).unwrap_err();
        assert!(error.contains("unknown field `"), "{error}");
    }
}

#[test]
fn wrong_arguments_of_a_plugin_are_an_error_with_their_position() {
    let error = parse("plugins:\n  - logging\n  - name: context_filter\n    args: {turn: 3}\n").unwrap_err();
    assert_eq!(
        error,
        "/srv/agents/hatchery.yaml:3:5: plugins[1]: plugin `context_filter`: unknown field `turn`, expected `turns`"
    );
}

#[test]
fn relative_paths_are_resolved_against_the_folder_of_the_file() {
    let config = parse("session_service: sqlite:data/s.db\nartifact_service: file:///var/a\n").unwrap();
    assert_eq!(config.session_service.as_deref(), Some("sqlite:///srv/agents/data/s.db"));
    assert_eq!(config.artifact_service.as_deref(), Some("file:///var/a"));
    let uri = "session_service: firestore://p/d?properties=a.properties&root=r\nmemory_service: firestore://p\n";
    let config = parse(uri).unwrap();
    let resolved = "firestore://p/d?properties=/srv/agents/a.properties&root=r";
    assert_eq!(config.session_service.as_deref(), Some(resolved));
    assert_eq!(config.memory_service.as_deref(), Some("firestore://p"));
    let uri = "session_service: postgres://u@h/d?schema=s&sslrootcert=ca.pem\nmemory_service: postgresql://u@h/d\n";
    let config = parse(uri).unwrap();
    let resolved = "postgres://u@h/d?schema=s&sslrootcert=/srv/agents/ca.pem";
    assert_eq!(config.session_service.as_deref(), Some(resolved));
    assert_eq!(config.memory_service.as_deref(), Some("postgresql://u@h/d"));
    let plugins = "plugins: [{name: recorder, args: {folder: recorded}}, {name: replay, args: {folder: /var/b}}]";
    let folders: Vec<_> = parse(plugins).unwrap().plugins.iter().map(|plugin| plugin.args["folder"].clone()).collect();
    assert_eq!(folders, ["/srv/agents/recorded", "/var/b"]);
    let grants = "components: {a: {grants: {files: [{host: data, guest: /data}, {host: /var/b, guest: /b}]}}}";
    let hosts: Vec<_> =
        parse(grants).unwrap().components["a"].grants.files.iter().map(|folder| folder.host.clone()).collect();
    assert_eq!(hosts, [Path::new("/srv/agents/data"), Path::new("/var/b")]);
    assert_eq!(resolve_uri(Path::new("here"), "sqlite:s.db"), "sqlite:here/s.db");
    for memory in ["memory:", "memory"] {
        assert_eq!(resolve_uri(Path::new("/x"), memory), "memory:");
    }
}

#[test]
fn the_schema_has_every_key_that_the_parser_knows() {
    let schema = Config::json_schema();
    let error = parse("nonsense: 1").unwrap_err();
    let keys: Vec<_> =
        error.split_once("expected one of ").unwrap().1.split(", ").map(|key| key.trim_matches('`')).collect();
    assert!(keys.len() > 10, "{error}");
    for key in keys {
        assert!(schema["properties"].get(key).is_some(), "{key}: {schema:#}");
    }
    let type_of = |path: &str| schema.pointer(path).unwrap_or_else(|| panic!("{path}: {schema:#}"))["type"].clone();
    assert_eq!(type_of("/properties/server/properties/allow_import"), "boolean");
    assert_eq!(
        type_of("/properties/components/additionalProperties/properties/grants/properties/network/items"),
        "string"
    );
    assert_eq!(type_of("/properties/apps/additionalProperties/properties/max_llm_calls"), "integer");
    assert_eq!(schema["properties"]["server"]["additionalProperties"], false);
}
