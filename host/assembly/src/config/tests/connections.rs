//! Settings of MCP servers, APIs and remote agents.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{ConfigValue, CredentialService};
use hatchery_openapi::{Confirmation, Credentials, DocumentSource, KeyLocation};
use hatchery_stores::MemoryCredentials;

use super::*;
use crate::egress::HostEgress;

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
        error("{a: {command: x, headers: {K: v}}}"),
        format!("{file}.a: `headers` belong to a `url`; give variables to a command by `env`")
    );
    assert_eq!(
        error("{a: {command: x, session_headers: {K: v}}}"),
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
        ("a2a: {expose: {versions: []}}", ".expose.versions is empty; remove it, or name 0.3 or 1.0"),
        (
            "a2a: {expose: {input_modes: [image]}}",
            ".expose.input_modes: `image` is no media type, such as image/png or image/*",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), format!("{file}{expected}"));
    }
}

#[test]
fn the_versions_for_a2a_clients_are_numbers_or_texts() {
    let versions =
        |text: &str| parse(&format!("a2a: {{expose: {{versions: {text}}}}}")).map(|it| it.a2a.expose.versions);
    assert_eq!(versions("[1.0, '0.3']"), Ok(vec![A2aVersion::V1_0, A2aVersion::V0_3]));
    assert_eq!(parse("").unwrap().a2a.expose.versions.len(), 2);
    let error = versions("[2.0]").unwrap_err();
    assert!(error.contains("`2.0` is no version of A2A that this host speaks; use 0.3 or 1.0"), "{error}");
}

#[test]
fn the_settings_in_the_guide_to_a2a_are_read() {
    let guide = include_str!("../../../../../docs/a2a.md");
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
    let settings: Vec<_> = blocks.filter(|block| block.starts_with("a2a:")).collect();
    for block in &settings {
        assert_ne!(parse(block).unwrap().a2a, A2aConfig::default(), "{block}");
    }
    assert_eq!(settings.len(), 3);
}
