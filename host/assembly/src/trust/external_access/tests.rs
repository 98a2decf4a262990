use super::*;

/// Returns the external access of a configuration in `folder`, with paths relative to the parent folder.
fn requested(folder: &Path, text: &str) -> Vec<String> {
    let config = Config::parse(text, &folder.join("hatchery.yaml")).unwrap();
    let parent = format!("{}/", folder.parent().unwrap().display());
    external_access(&config, folder).iter().map(|access| access.to_string().replace(&parent, "")).collect()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap().join("agents");
    std::fs::create_dir_all(folder.join("data")).unwrap();
    (root, folder)
}

#[test]
fn settings_inside_of_the_folder_need_no_trust() {
    let (_root, folder) = folder();
    let inside = "session_service: sqlite:sessions.db\nartifact_service: file:artifacts\nmemory_service: 'memory:'\n\
                  plugins: [logging, {name: recorder, args: {folder: recorded}}, kitchen/redact]\n\
                  limits: {memory: 1GiB}\nregistry: {signatures: warn}\naudit: {file: audit.log}\nserver: {body_limit: 1MiB}\n\
                  components:\n  a:\n    config: {url: 'http://example.com'}\n    grants:\n      models: ['*']\n      memory: read\n      \
                  artifacts: write\n      state: {write: ['app:*']}\n      tools: ['*']\n      environment: {LANG: C}\n      \
                  files: [{host: data, guest: /data, access: write}, {host: not/yet/there, guest: /x}]\n";
    assert_eq!(requested(&folder, inside), Vec::<String>::new());
    assert_eq!(requested(&folder, "session_service: memory\n"), Vec::<String>::new());
    let absolute =
        format!("components: {{a: {{grants: {{files: [{{host: {}/data, guest: /d}}]}}}}}}", folder.display());
    assert_eq!(requested(&folder, &absolute), Vec::<String>::new());
}

#[test]
fn external_access_is_listed_with_its_keys() {
    let (_root, folder) = folder();
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let text = format!(
        "session_service: postgres://me:secret@db/x\nartifact_service: file:../artifacts\n\
         models: {{openai_base_url: 'http://evil.example', gemini_base_url: 'https://evil.example', vertex_base_url: 'https://v', \
         anthropic_base_url: 'https://a', ollama_base_url: 'http://o', vllm_base_url: 'http://v', llamacpp_base_url: 'http://l', \
         openrouter_base_url: 'https://r', apigee_base_url: 'https://g', fallback: {{a: [b]}}}}\n\
         plugins: [{{name: recorder, args: {{folder: /srv/recorded}}}}]\n\
         encryption: {{keys: [{{id: new, from: STORE_KEY}}, {{id: old, file: old.key}}]}}\n\
         components:\n  web:\n    grants:\n      network: ['*']\n      private_network: ['10.0.0.0/8']\n      \
         secrets: [{{name: key, from: KEY, host: evil.example, header: X-Key}}]\n      \
         environment: {{TOKEN: {{from: GITHUB_TOKEN}}}}\n      \
         files: [{{host: /, guest: /root}}, {{host: data/../../other, guest: /o, access: write}}]\n\
         registry: {{signatures: off, trusted_keys: [{key}]}}\n\
         server: {{allowed_hosts: ['*'], cors: {{origins: '*'}}, allow_import: true, \
         tls: {{certificate: cert.pem, key: /srv/key.pem}}, auth: {{keys: [{{name: ci, from: CI_KEY, user: bot, apps: [dice, 'trip-*']}}, {{name: ops, role: operate, file: ops.key}}], \
         oidc: {{issuer: 'https://id.example', audience: hatchery, jwks_url: 'https://id.example/keys'}}}}, dev_ui: full, secret_file: key, body_memory: 1GiB}}\n\
         instances: {{max: 1001}}\n\
         compile: {{time: 61s, threads: 1000, max_file_size: 1GiB, max_function_size: 2MiB, max_functions: 1000000}}\n\
         audit: {{enabled: false, file: /dev/null}}\n\
         mcp: {{servers: {{files: {{command: npx, args: [-y, server], env: {{HOME: {{from: HOME}}, LANG: C}}, sampling: {{model: small}}}}, \
         web: {{url: 'https://me:secret@mcp.example', headers: {{Authorization: {{from: TOKEN, prefix: 'Bearer '}}}}, oauth: {{client_id: me, \
         client_secret: {{from: MCP_SECRET}}, network: [login.example]}}}}}}}}\n\
         a2a: {{public_url: 'https://me:secret@hosts.example', push: {{network: [hooks.example]}}, agents: {{far: {{card: 'https://a2a.example/card', network: ['*.a2a.example'], \
         headers: {{X-Key: {{from: KEY}}}}}}, near: {{card: card.json}}}}}}\n\
         openapi: {{apis: {{shop: {{document: shop.json, base_url: 'https://shop.example', network: ['*.shop.example'], \
         auth: {{bearer: {{from: SHOP_TOKEN}}}}, headers: {{X-Team: {{from: TEAM}}, X-App: me}}}}, \
         far: {{document: 'https://far.example/openapi.json', auth: {{oauth2: {{token_url: 'https://login.example/token', \
         client_id: me, client_secret: {{from: SECRET}}}}}}}}, \
         cloud: {{document: cloud.json, auth: {{service_account: {{file: key.json}}}}}}, \
         literal: {{document: a.json, auth: {{service_account: {{json: '{{}}'}}}}}}, \
         users: {{document: a.json, auth: {{user: {{oauth2: {{authorization_url: 'https://login.example/auth', \
         token_url: 'https://login.example/token', client_id: me, client_secret: {{from: SECRET}}}}}}}}}}, \
         variable: {{document: a.json, auth: {{service_account: {{json: {{from: ACCOUNT}}}}}}}}, near: {{document: near.json}}}}}}\n\
         code_executors: {{python: {{container: {{socket: /run/docker.sock, image: python}}}}, \
         cloud: {{vertex: {{extension: projects/p/locations/l/extensions/7, service_account: {{file: key.json}}}}}}}}\n\
         integrations: {{jira: {{project: p, location: l, connection: jira, service_account: {{file: key.json}}}}, \
         orders: {{project: p, location: l, integration: orders, endpoint: 'http://localhost:1'}}}}\n"
    );
    assert_eq!(
        requested(&folder, &text),
        [
            "session_service: postgres://…@db/x",
            "artifact_service: file://agents/../artifacts",
            "encryption.keys.new: from STORE_KEY",
            "encryption.keys.old: from agents/old.key",
            "models.gemini_base_url: https://evil.example",
            "models.vertex_base_url: https://v",
            "models.openai_base_url: http://evil.example",
            "models.anthropic_base_url: https://a",
            "models.ollama_base_url: http://o",
            "models.vllm_base_url: http://v",
            "models.llamacpp_base_url: http://l",
            "models.openrouter_base_url: https://r",
            "models.apigee_base_url: https://g",
            "plugins[0].args.folder: /srv/recorded",
            "mcp.servers.files.command: npx -y server",
            "mcp.servers.files.env.HOME: from HOME",
            "mcp.servers.files.sampling: small",
            "mcp.servers.web.url: https://…@mcp.example",
            "mcp.servers.web.headers.Authorization: from TOKEN",
            "mcp.servers.web.oauth.network: login.example",
            "mcp.servers.web.oauth.client_secret: from MCP_SECRET",
            "a2a.agents.far.card: https://a2a.example/card",
            "a2a.agents.far.network: *.a2a.example",
            "a2a.agents.far.headers.X-Key: from KEY",
            "openapi.apis.cloud.auth.service_account.file: agents/key.json",
            "openapi.apis.far.document: https://far.example/openapi.json",
            "openapi.apis.far.auth.oauth2.token_url: https://login.example/token",
            "openapi.apis.far.auth.oauth2.client_secret: from SECRET",
            "openapi.apis.literal.auth.service_account.json: a key in the file",
            "openapi.apis.shop.base_url: https://shop.example",
            "openapi.apis.shop.network: *.shop.example",
            "openapi.apis.shop.auth.bearer: from SHOP_TOKEN",
            "openapi.apis.shop.headers.X-Team: from TEAM",
            "openapi.apis.users.auth.user.oauth2.authorization_url: https://login.example/auth",
            "openapi.apis.users.auth.user.oauth2.token_url: https://login.example/token",
            "openapi.apis.users.auth.user.oauth2.client_secret: from SECRET",
            "openapi.apis.variable.auth.service_account.json: from ACCOUNT",
            "integrations.jira.connection: projects/p/locations/l/connections/jira",
            "integrations.jira.service_account.file: agents/key.json",
            "integrations.orders.integration: projects/p/locations/l/integrations/orders",
            "integrations.orders.endpoint: http://localhost:1",
            "code_executors.cloud.vertex.extension: projects/p/locations/l/extensions/7",
            "code_executors.cloud.vertex.service_account.file: agents/key.json",
            "code_executors.python.container.socket: /run/docker.sock",
            "code_executors.python.container.image: python",
            "a2a.public_url: https://…@hosts.example",
            "a2a.push.network: hooks.example",
            "components.web.grants.network: *",
            "components.web.grants.private_network: 10.0.0.0/8",
            "components.web.grants.secrets: key for evil.example",
            "components.web.grants.environment.TOKEN: from GITHUB_TOKEN",
            "components.web.grants.files: read /",
            "components.web.grants.files: write agents/data/../../other",
            "registry.trusted_keys: E7620F1842B4E81F",
            "registry.signatures: off",
            "server.allowed_hosts: *",
            "server.cors[0].origins: *",
            "server.auth.keys.ci: use dice, trip-* as the user bot, from CI_KEY",
            "server.auth.keys.ops: operate *, from agents/ops.key",
            "server.auth.oidc: tokens of https://id.example, keys at https://id.example/keys",
            "server.tls: agents/cert.pem, key /srv/key.pem",
            "server.allow_import: true",
            "server.dev_ui: full",
            "server.secret_file: agents/key",
            "instances.max: 1001",
            "compile.time: 61",
            "compile.threads: 1000",
            "compile.max_file_size: 1073741824",
            "compile.max_function_size: 2097152",
            "compile.max_functions: 1000000",
            "server.body_memory: 1073741824",
            "audit.file: /dev/null",
            "audit.enabled: false",
        ]
    );
}

#[test]
fn a_service_in_a_cloud_is_external_access() {
    let (_root, folder) = folder();
    for (key, uri) in [
        ("artifact_service", "s3://bucket/prefix"),
        ("artifact_service", "gs://bucket"),
        ("artifact_service", "az://container/prefix"),
        ("session_service", "postgres://db/agents"),
        ("session_service", "agentengine://project/location/1"),
        ("memory_service", "agentengine://project/location/1"),
    ] {
        assert_eq!(requested(&folder, &format!("{key}: {uri}")), [format!("{key}: {uri}")]);
    }
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_external_access() {
    let (_root, folder) = folder();
    std::os::unix::fs::symlink("/etc", folder.join("etc")).unwrap();
    std::os::unix::fs::symlink("data", folder.join("inner")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", folder.join("dangling")).unwrap();
    let grant = |host: &str| format!("components: {{a: {{grants: {{files: [{{host: {host}, guest: /x}}]}}}}}}");
    for outside in ["etc", "etc/not-there", "dangling", "dangling/x"] {
        assert_eq!(requested(&folder, &grant(outside)).len(), 1, "{outside}");
    }
    assert!(requested(&folder, &grant("inner")).is_empty());
}

#[test]
fn a_value_cannot_look_like_another_line() {
    let (_root, folder) = folder();
    let values = requested(&folder, "server: {allowed_hosts: [\"a\\n\\nNothing else is requested.\\e[2K\"]}");
    assert_eq!(values, ["server.allowed_hosts: a\\u{a}\\u{a}Nothing else is requested.\\u{1b}[2K"]);
}
