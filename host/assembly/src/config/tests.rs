//! Tests of parsing the configuration.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{ConfigValue, CredentialService};
use hatchery_openapi::{Confirmation, Credentials, DocumentSource, KeyLocation};
use hatchery_stores::MemoryCredentials;

use super::*;
use crate::byte_size::ByteSize;
use crate::egress::HostEgress;

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
    assert!(config.server.cancel_on_disconnect && config.server.allow_import);
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
fn a_base_path_that_would_have_to_be_encoded_is_an_error() {
    let error = parse("server:\n  base_path: agents\n").unwrap_err();
    let message = "`agents` is not a base path; write one such as /agents, of letters, digits and `-._~`, or leave it out to serve at the root";
    assert!(error.contains("/srv/agents/hatchery.yaml:2:") && error.contains(message), "{error}");
}

#[test]
fn a_turn_is_held_for_a_time_within_bounds() {
    for (lease, is_valid) in [("100ms", true), ("1min", true), ("99ms", false), ("0", false), ("61", false)] {
        let parsed = parse(&format!("server: {{turn_lease: {lease}}}"));
        let message = "a turn is held for 100 ms to 1 min; write a time in between";
        assert_eq!(parsed.is_ok(), is_valid, "{lease}");
        assert!(parsed.err().is_none_or(|error| error.contains(message)), "{lease}");
    }
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
fn wrong_grants_are_an_error_with_their_position() {
    let error = |grant: &str| parse(&format!("components:\n  web:\n    grants:\n      {grant}\n")).unwrap_err();
    let unknown = error("model: [x]");
    let expected = "/srv/agents/hatchery.yaml:4:7: components.web.grants: unknown field `model`, expected one of ";
    assert!(unknown.starts_with(expected), "{unknown}");
    for (grant, expected) in [
        ("models: ['']", "a pattern is not empty; `*` stands for all names"),
        ("artifacts: all", "unknown variant `all`, expected `read` or `write`"),
        ("environment: {PORT: 8080}", "the value of a variable is a text, or `{from: VARIABLE OF THE HOST}`"),
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
        error.contains("components.python.warm.size: invalid value: integer `0`, expected a nonzero u32"),
        "{error}"
    );
    let error = parse("hot_reload: {drain_timeout: soon}").unwrap_err();
    assert!(error.contains("hot_reload: `soon` is not a time"), "{error}");
}

#[test]
fn a_key_of_an_earlier_version_is_an_error_with_the_new_key() {
    let error = parse("engine: {instances: 10}").unwrap_err();
    assert!(error.ends_with("; it is now `instances`, and its `compile` is a section of its own"), "{error}");
    let error = parse("instances: {busy_wait: 5s}").unwrap_err();
    assert!(error.contains("unknown field `busy_wait`") && error.ends_with("; it is now `queue_timeout`"), "{error}");
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
    assert!(error.contains("app_defaults.max_llm_calls: invalid type: integer `-1`, expected u32"), "{error}");
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
    assert_eq!(resolve_uri(Path::new("/x"), "memory:"), "memory:");
}

fn credentials() -> Arc<dyn CredentialService> {
    Arc::new(MemoryCredentials::default())
}

#[test]
fn mcp_servers_are_processes_or_urls() {
    let config = parse(
        "mcp:\n  servers:\n    files: {command: ./serve, args: [--read-only], env: {KEY: {from: KEY}}, call_timeout: 5s, \
         require_confirmation: [write]}\n    web: {url: 'https://mcp.example', headers: {X-Key: {from: KEY, prefix: 'k '}}, \
         tools: [search], max_message: 1 MiB, require_confirmation: true}\n    git: {command: git-mcp, cwd: repo}\n",
    )
    .unwrap();
    let settings =
        |(name, server): (&String, &McpServerConfig)| (name.clone(), server.settings(name, &credentials()).unwrap());
    let servers: BTreeMap<_, _> = config.mcp.servers.iter().map(settings).collect();
    let hatchery_mcp::Transport::Stdio(files) = &servers["files"].transport else { panic!("{servers:?}") };
    assert_eq!(
        (files.command.as_path(), files.cwd.as_deref()),
        (Path::new("/srv/agents/./serve"), Some(Path::new("/srv/agents/")))
    );
    assert_eq!(servers["files"].limits.call_timeout, Duration::from_secs(5));
    assert!(servers["files"].confirmation.is_required("write") && !servers["files"].confirmation.is_required("read"));
    let hatchery_mcp::Transport::Http(web) = &servers["web"].transport else { panic!("{servers:?}") };
    let key = ConfigValue::Variable { name: "KEY".into(), prefix: "k ".into() };
    assert_eq!((web.url.as_str(), &web.headers["X-Key"]), ("https://mcp.example", &key));
    assert_eq!((servers["web"].limits.max_message, servers["web"].confirmation.is_required("search")), (1 << 20, true));
    let old = parse("mcp: {servers: {old: {url: 'http://localhost/sse', transport: sse}}}").unwrap();
    assert!(matches!(
        old.mcp.servers["old"].settings("old", &credentials()).unwrap().transport,
        hatchery_mcp::Transport::Sse(_)
    ));
    let hatchery_mcp::Transport::Stdio(git) = &servers["git"].transport else { panic!("{servers:?}") };
    assert_eq!(
        (git.command.as_path(), git.cwd.as_deref()),
        (Path::new("git-mcp"), Some(Path::new("/srv/agents/repo")))
    );
}

#[test]
fn an_mcp_server_may_use_the_model_that_its_settings_name() {
    let sampling = |server: &str| {
        let config = parse(&format!("mcp: {{servers: {{a: {server}}}}}"))?;
        let settings = config.mcp.servers["a"].settings("a", &credentials()).unwrap();
        Ok::<_, String>(settings.sampling.map(|sampling| (sampling.model, sampling.max_tokens)))
    };
    assert_eq!(sampling("{command: x}"), Ok(None));
    assert_eq!(sampling("{command: x, sampling: {model: small}}"), Ok(Some(("small".into(), 4096))));
    assert_eq!(sampling("{command: x, sampling: {model: small, max_tokens: 9}}"), Ok(Some(("small".into(), 9))));
    let error = sampling("{command: x, sampling: {max_tokens: 9}}").unwrap_err();
    assert!(error.contains("missing field `model`"), "{error}");
}

#[test]
fn tokens_of_an_mcp_server_are_bound_to_its_url() {
    let id = |url: &str| {
        let config = parse(&format!("mcp: {{servers: {{a: {{url: '{url}', oauth: {{scopes: [read]}}}}}}}}")).unwrap();
        let settings = config.mcp.servers["a"].settings("a", &credentials()).unwrap();
        settings.oauth.unwrap().tokens.unwrap().id
    };
    assert!(id("https://a.example/mcp").key.starts_with("mcp:a:"));
    assert_ne!(id("https://a.example/mcp"), id("https://b.example/mcp"));
}

#[test]
fn an_mcp_server_has_exactly_one_transport() {
    let error = |server: &str| parse(&format!("mcp: {{servers: {server}}}\n")).unwrap_err();
    let file = "/srv/agents/hatchery.yaml: mcp.servers";
    assert_eq!(error("{a: {}}"), format!("{file}.a: a server needs either a `command` to start or a `url`"));
    assert_eq!(
        error("{a: {command: x, url: 'http://x'}}"),
        format!("{file}.a: a server has either a `command` or a `url`; remove one of them")
    );
    assert_eq!(
        error("{a: {command: x, session_headers: {K: v}}}"),
        format!("{file}.a: `headers` belong to a `url`; give variables to a command by `env`")
    );
    assert_eq!(
        error("{a: {command: x, headers: {K: v}}}"),
        format!("{file}.a: `headers` belong to a `url`; give variables to a command by `env`")
    );
    assert_eq!(
        error("{a: {url: 'http://x', args: [v]}}"),
        format!("{file}.a: `args`, `env` and `cwd` belong to a `command`; remove them, or the `url`")
    );
    assert_eq!(
        error("{a: {command: x, oauth: {}}}"),
        format!("{file}.a: `oauth` belongs to a `url` over streamable HTTP")
    );
    assert_eq!(
        error("{a: {url: 'http://x', oauth: {grant: client_credentials}}}"),
        format!("{file}.a: `oauth`: the grant `client_credentials` needs `client_id` and `client_secret`")
    );
    assert_eq!(
        error("{a: {url: 'http://x', oauth: {client_secret: s}}}"),
        format!("{file}.a: `oauth`: a `client_secret` belongs to a `client_id`")
    );
    assert_eq!(error("{a: {url: 'ftp://x'}}"), format!("{file}.a: `url` must begin with http:// or https://"));
    assert_eq!(
        error("{'a b': {command: x}}"),
        format!("{file}: `a b` is not a valid server name; use up to 64 letters, digits, `-` and `_`")
    );
}

#[test]
fn apis_have_a_document_credentials_and_hosts() {
    let config = parse(
        "openapi:\n  apis:\n    shop: {document: shop.yaml, base_url: 'http://127.0.0.1:9/v1', auth: {api_key: {in: query, name: key, \
         value: {from: KEY}}}, tags: [read], require_confirmation: writes, max_answer: 1 KiB}\n    far: {document: \
         'https://far.example/openapi.json', auth: {service_account: {file: key.json}}, network: [api.far.example]}\n",
    )
    .unwrap();
    let (shop, far) = (&config.openapi.apis["shop"], &config.openapi.apis["far"]);
    let settings = shop.settings(HostEgress::new(shop.policy().unwrap(), "x")).unwrap();
    assert_eq!(settings.document, DocumentSource::File("/srv/agents/shop.yaml".into()));
    let value = ConfigValue::Variable { name: "KEY".into(), prefix: String::new() };
    let key = Credentials::ApiKey { location: KeyLocation::Query, name: "key".into(), value };
    assert_eq!((settings.credentials, settings.confirmation), (key, Confirmation::Writes));
    assert_eq!(settings.limits.max_answer, 1_024);
    let hosts = |api: &ApiConfig| api.policy().unwrap().network.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(hosts(shop), ["http://127.0.0.1:9"]);
    assert_eq!(shop.policy().unwrap().private_network[0].to_string(), "127.0.0.1:9");
    assert_eq!(hosts(far), ["api.far.example", "far.example", "oauth2.googleapis.com"]);
    let account = far.auth.service_account.as_ref().unwrap();
    assert_eq!(account.file.as_deref(), Some(Path::new("/srv/agents/key.json")));
}

#[test]
fn the_mistake_in_an_api_is_named() {
    let error = |api: &str| parse(&format!("openapi: {{apis: {api}}}\n")).unwrap_err();
    let file = "/srv/agents/hatchery.yaml: openapi.apis";
    assert_eq!(error("{a: {}}"), format!("{file}.a: `document` is missing: the URL of an OpenAPI document, or a file"));
    assert_eq!(
        error("{'a b': {document: x}}"),
        format!("{file}: `a b` is not a valid name; use up to 64 letters, digits, `-` and `_`")
    );
    assert_eq!(
        error("{a: {document: x, base_url: 'ftp://x'}}"),
        format!("{file}.a.base_url must begin with http:// or https://")
    );
    assert_eq!(
        error("{a: {document: x, auth: {bearer: t, basic: {username: u, password: p}}}}"),
        format!("{file}.a.auth: an API has one kind of credentials; remove the others")
    );
    assert_eq!(
        error("{a: {document: x, auth: {service_account: {}}}}"),
        format!("{file}.a.auth: service_account has either a `file` or a `json` from a variable")
    );
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

#[test]
fn a_remote_agent_reaches_the_host_of_its_card_and_what_is_listed() {
    let config = parse(
        "a2a:\n  agents:\n    far: {card: 'https://far.example/card', network: [api.far.example], max_card: 1 KiB, aggregation: as_is}\n    \
         near: {card: 'http://localhost:9000/card'}\n    file: {card: cards/a.json}\n  expose: {apps: ['a*']}\n",
    )
    .unwrap();
    let agents = &config.a2a.agents;
    let hosts = |name: &str| {
        let policy = agents[name].policy().unwrap();
        let names =
            |entries: &[hatchery_wasm::HostPattern]| entries.iter().map(ToString::to_string).collect::<Vec<_>>();
        (names(&policy.network), policy.private_network.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(hosts("far"), (vec!["api.far.example".into(), "far.example".into()], Vec::new()));
    assert_eq!(hosts("near"), (vec!["http://localhost:9000".into()], vec!["localhost:9000".into()]));
    assert_eq!(hosts("file"), (Vec::new(), Vec::new()));
    assert_eq!(agents["file"].card, "/srv/agents/cards/a.json");
    assert_eq!((config.a2a.expose.apps, config.a2a.push.network.len()), (vec!["a*".into()], 0));
    let file = "/srv/agents/hatchery.yaml: a2a";
    for (text, expected) in [
        (
            "a2a: {agents: {'a b': {card: x}}}",
            ".agents: `a b` is not a valid name; use up to 64 letters, digits, `-` and `_`",
        ),
        ("a2a: {agents: {a: {}}}", ".agents.a: `card` is missing: the URL of an agent card, or a file"),
        ("a2a: {public_url: agents.example}", ".public_url must begin with http:// or https://"),
    ] {
        assert_eq!(parse(text).unwrap_err(), format!("{file}{expected}"));
    }
}

#[test]
fn the_settings_in_the_guide_to_a2a_are_read() {
    let guide = include_str!("../../../../docs/a2a.md");
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
    let settings: Vec<_> = blocks.filter(|block| block.starts_with("a2a:")).collect();
    for block in &settings {
        assert_ne!(parse(block).unwrap().a2a, A2aConfig::default(), "{block}");
    }
    assert_eq!(settings.len(), 3);
}

#[test]
fn cors_is_one_mapping_or_a_list_in_both_spellings() {
    let one = parse(
        "server:\n  cors: {mapping: /apps/**, origins: 'https://a.example', methods: [GET], headers: [authorization], \
         allowCredentials: true, maxAge: 60}\n",
    );
    let expected = CorsConfig {
        mapping: "/apps/**".into(),
        origins: vec!["https://a.example".into()],
        methods: vec!["GET".into()],
        headers: vec!["authorization".into()],
        allow_credentials: true,
        max_age: Duration::from_secs(60),
    };
    assert_eq!(one.unwrap().server.cors, [expected]);
    let text = "server:\n  cors:\n    - {origins: ['https://a.example'], allow_credentials: true, max_age: 5min}\n    - {origins: ['*']}\n";
    let list = parse(text).unwrap().server.cors;
    let of = |rule: &CorsConfig| (rule.mapping.clone(), rule.allow_credentials, rule.max_age.as_secs());
    assert_eq!(list.iter().map(of).collect::<Vec<_>>(), [("/**".into(), true, 300), ("/**".into(), false, 3600)]);
    assert_eq!(parse("").unwrap().server.cors, []);
}

#[test]
fn rules_of_cors_that_cannot_be_meant_are_errors() {
    let error = |rule: &str| parse(&format!("server: {{cors: {rule}}}")).unwrap_err();
    let of = |problem: &str| format!("/srv/agents/hatchery.yaml: server.cors[0]: {problem}");
    assert_eq!(
        error("{origins: ['*'], allow_credentials: true}"),
        of(
            "`allow_credentials` together with the origin `*` would let every web page act for the user of the browser; \
            list the origins, or leave `allow_credentials` out"
        )
    );
    let missing = "`origins` is missing: the origins whose pages may send requests, such as https://app.example";
    assert_eq!(error("{mapping: /run}"), of(missing));
    for origin in ["app.example", "https://app.example/", "https://*.example", "null"] {
        let problem = format!(
            "`{origin}` is not a valid origin; write the scheme, the host and the port, without a path, as in http://localhost:4200, \
             or `*` for all"
        );
        assert_eq!(error(&format!("{{origins: ['{origin}']}}")), of(&problem));
    }
    let error_of_mapping = |mapping: &str| error(&format!("{{origins: ['*'], mapping: '{mapping}'}}"));
    assert_eq!(error_of_mapping("run"), of("`mapping` is `run`, but must begin with `/`, as in `/**`"));
    assert_eq!(error_of_mapping("/**/users"), of("`mapping` is `/**/users`, but `**` may only be at its end"));
    assert_eq!(error("{origins: ['*'], methods: ['GE T']}"), of("`GE T` in `methods` is not a valid name"));
    assert!(error("{origin: x}").contains("unknown field `origin`"));
}

#[test]
fn keys_and_tokens_of_clients_are_read() {
    let hash = "9f".repeat(32);
    let auth = parse(&format!(
        "server:\n  auth:\n    keys:\n      - {{name: ci, from: CI_KEY, apps: dice, user: bot}}\n      \
         - {{name: ops, sha256: {hash}, role: operate}}\n      - {{name: web, file: keys/web}}\n    \
         oidc: {{issuer: 'https://id.example', audience: hatchery, jwks_url: 'https://id.example/keys', algorithms: [EdDSA], \
         clock_skew: 30s, user_claim: email, role_claim: roles, apps: [dice]}}\n",
    ));
    let auth = auth.unwrap().server.auth.unwrap();
    let key = |name: &str| ClientKeyConfig { name: name.into(), ..ClientKeyConfig::default() };
    let expected = [
        ClientKeyConfig {
            from: Some("CI_KEY".into()),
            apps: vec!["dice".into()],
            user: Some("bot".into()),
            ..key("ci")
        },
        ClientKeyConfig { sha256: Some(hash), role: Role::Operate, ..key("ops") },
        ClientKeyConfig { file: Some("/srv/agents/keys/web".into()), ..key("web") },
    ];
    assert_eq!(auth.keys, expected);
    assert_eq!(auth.keys[1].digest(), Ok([0x9f; 32]));
    assert_eq!(
        auth.oidc.unwrap(),
        OidcConfig {
            issuer: "https://id.example".into(),
            audience: vec!["hatchery".into()],
            jwks_url: "https://id.example/keys".into(),
            algorithms: vec![TokenAlgorithm::EdDsa],
            clock_skew: Duration::from_secs(30),
            user_claim: "email".into(),
            role_claim: Some("roles".into()),
            apps: vec!["dice".into()],
        }
    );
    assert_eq!(parse("").unwrap().server.auth, None);
}

#[test]
fn authentication_that_cannot_be_meant_is_an_error() {
    let error = |auth: &str| parse(&format!("server: {{auth: {auth}}}")).unwrap_err();
    let of = |problem: &str| format!("/srv/agents/hatchery.yaml: {problem}");
    assert_eq!(
        error("{}"),
        of(
            "server.auth has neither `keys` nor `oidc`, so nobody could use the server; add one of them, or leave it out"
        )
    );
    let key = |key: &str| error(&format!("{{keys: [{{{key}}}]}}"));
    assert_eq!(key("from: K"), of("server.auth.keys[0]: `name` is missing; it stands for the key in logs"));
    let two = "{keys: [{name: a, from: K}, {name: a, from: L}]}";
    assert_eq!(error(two), of("server.auth.keys: two keys have the name `a`"));
    let one_source = "set one of `sha256`, `from` (an environment variable) and `file`";
    let hash = "`sha256` must have 64 hexadecimal digits, as `printf %s \"$KEY\" | sha256sum` prints them";
    let operator = "a key of the role `operate` may use every app for every user; leave out `apps` and `user`";
    for (rest, problem) in [
        ("", one_source),
        ("from: K, file: k", one_source),
        ("sha256: abc", hash),
        (&*format!("sha256: {}", "g".repeat(64)), hash),
        ("from: K, apps: []", "`apps` is empty, so the key could use nothing; name apps, or leave it out"),
        ("from: K, user: ''", "`user` is not the id of a user: it has 1 to 256 bytes and no control characters"),
        ("from: K, role: operate, user: u", operator),
        ("from: K, role: operate, apps: dice", operator),
    ] {
        assert_eq!(key(&format!("name: a, {rest}")), of(&format!("server.auth.keys[0] (`a`): {problem}")), "{rest}");
    }
    assert!(key("name: a, from: K, role: admin").contains("unknown variant `admin`, expected `use` or `operate`"));
    assert!(key("name: a, key: secret").contains("unknown field `key`"));
    let complete = "issuer: i, audience: a, jwks_url: 'https://id.example/keys'";
    for (rest, problem) in [
        ("audience: a, jwks_url: 'https://k'", "`issuer` is missing: the claim `iss` of its tokens"),
        (
            "issuer: i, jwks_url: 'https://k'",
            "`audience` is missing: without it, tokens for any other service would be accepted",
        ),
        (
            "issuer: i, audience: a, jwks_url: 'http://localhost.evil.example/keys'",
            "`jwks_url` must be an https:// URL without a user name, or an http:// one of this machine",
        ),
        (
            "issuer: i, audience: a, jwks_url: 'http://localhost@evil.example/keys'",
            "`jwks_url` must be an https:// URL without a user name, or an http:// one of this machine",
        ),
        (&*format!("{complete}, algorithms: []"), "`algorithms` is empty, so no token could be accepted"),
        (&*format!("{complete}, clock_skew: 6min"), "`clock_skew` is at most 5 min"),
        (&*format!("{complete}, user_claim: ''"), "`user_claim` is empty; leave it out for `sub`"),
        (&*format!("{complete}, apps: []"), "`apps` is empty, so tokens could use nothing; name apps, or leave it out"),
    ] {
        assert_eq!(error(&format!("{{oidc: {{{rest}}}}}")), of(&format!("server.auth.oidc: {problem}")), "{rest}");
    }
    let unknown = error(&format!("{{oidc: {{{complete}, algorithms: [HS256]}}}}"));
    assert!(unknown.contains("unknown variant `HS256`, expected one of `RS256`, `ES256`, `EdDSA`"), "{unknown}");
    assert_eq!(parse(&format!("server: {{auth: {{oidc: {{{complete}}}}}}}")).err(), None);
}

#[test]
fn the_schema_has_the_keys_of_access() {
    let schema = Config::json_schema();
    let server = &schema["properties"]["server"]["properties"];
    let rule = &server["cors"]["anyOf"][0]["properties"];
    assert_eq!(rule.as_object().unwrap().keys().collect::<Vec<_>>().len(), 6, "{rule}");
    assert_eq!(rule["allow_credentials"]["type"], "boolean");
    let auth = &server["auth"]["properties"];
    assert_eq!(auth["keys"]["items"]["properties"]["name"]["type"], "string", "{auth}");
    assert_eq!(auth["oidc"]["properties"]["issuer"]["type"], "string", "{auth}");
    assert!(server["tls"]["properties"].get("certificate").is_some(), "{server}");
}

#[test]
fn a_literal_secret_is_not_in_the_debug_output() {
    let text = "openapi: {apis: {a: {document: a.json, auth: {bearer: s3cret}, headers: {X: {from: TOKEN}}}}}";
    let config = Config::parse(text, Path::new("/srv/hatchery.yaml")).unwrap();
    let shown = format!("{config:?}");
    assert!(!shown.contains("s3cret") && shown.contains("[hidden]") && shown.contains("TOKEN"), "{shown}");
}
