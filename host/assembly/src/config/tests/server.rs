//! Settings of the server and of its clients.

use std::time::Duration;

use super::*;

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
    let summary = |rule: &CorsConfig| (rule.mapping.clone(), rule.allow_credentials, rule.max_age.as_secs());
    assert_eq!(list.iter().map(summary).collect::<Vec<_>>(), [("/**".into(), true, 300), ("/**".into(), false, 3600)]);
    assert_eq!(parse("").unwrap().server.cors, []);
}

#[test]
fn rules_of_cors_that_cannot_be_meant_are_errors() {
    let error = |rule: &str| parse(&format!("server: {{cors: {rule}}}")).unwrap_err();
    let message = |problem: &str| format!("/srv/agents/hatchery.yaml: server.cors[0]: {problem}");
    assert_eq!(
        error("{origins: ['*'], allow_credentials: true}"),
        message(
            "`allow_credentials` together with the origin `*` would let every web page act for the user of the browser; \
            list the origins, or leave `allow_credentials` out"
        )
    );
    let missing = "`origins` is missing: the origins whose pages may send requests, such as https://app.example";
    assert_eq!(error("{mapping: /run}"), message(missing));
    for origin in ["app.example", "https://app.example/", "https://*.example", "null"] {
        let problem = format!(
            "`{origin}` is not a valid origin; write the scheme, the host and the port, without a path, as in http://localhost:4200, \
             or `*` for all"
        );
        assert_eq!(error(&format!("{{origins: ['{origin}']}}")), message(&problem));
    }
    let error_of_mapping = |mapping: &str| error(&format!("{{origins: ['*'], mapping: '{mapping}'}}"));
    assert_eq!(error_of_mapping("run"), message("`mapping` is `run`, but must begin with `/`, as in `/**`"));
    assert_eq!(error_of_mapping("/**/users"), message("`mapping` is `/**/users`, but `**` may only be at its end"));
    assert_eq!(error("{origins: ['*'], methods: ['GE T']}"), message("`GE T` in `methods` is not a valid name"));
    assert!(error("{origin: x}").contains("unknown field `origin`"));
}

#[test]
fn keys_and_tokens_of_clients_are_read() {
    let hash = "9f".repeat(32);
    let auth = parse(&format!(
        "server:\n  auth:\n    keys:\n      - {{name: ci, from: CI_KEY, apps: dice, user: bot}}\n      \
         - {{name: ops, sha256: {hash}, role: operate}}\n      - {{name: web, file: keys/web}}\n    \
         oidc: {{issuer: 'https://id.example', audience: hatchery, jwks_url: 'https://id.example/keys', algorithms: [EdDSA], \
         clock_skew: 30s, user_claim: email, users: ann@example.org, role_claim: roles, apps: [dice]}}\n",
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
            users: vec!["ann@example.org".into()],
            role_claim: Some("roles".into()),
            apps: vec!["dice".into()],
        }
    );
    assert_eq!(parse("").unwrap().server.auth, None);
}

#[test]
fn authentication_that_cannot_be_meant_is_an_error() {
    let error = |auth: &str| parse(&format!("server: {{auth: {auth}}}")).unwrap_err();
    let message = |problem: &str| format!("/srv/agents/hatchery.yaml: {problem}");
    assert_eq!(
        error("{}"),
        message(
            "server.auth has neither `keys` nor `oidc`, so no client could use the server; add one of them, or leave it out"
        )
    );
    let key = |key: &str| error(&format!("{{keys: [{{{key}}}]}}"));
    assert_eq!(key("from: K"), message("server.auth.keys[0]: `name` is missing; it identifies the key in logs"));
    let two = "{keys: [{name: a, from: K}, {name: a, from: L}]}";
    assert_eq!(error(two), message("server.auth.keys: two keys have the name `a`"));
    let one_source = "set one of `sha256`, `from` (an environment variable) and `file`";
    let hash = "`sha256` must have 64 hexadecimal digits, as `printf %s \"$KEY\" | sha256sum` prints them";
    let operator = "a key of the role `operate` may use every app for every user; leave out `apps` and `user`";
    for (rest, problem) in [
        ("", one_source),
        ("from: K, file: k", one_source),
        ("sha256: abc", hash),
        (&*format!("sha256: {}", "g".repeat(64)), hash),
        (&*format!("sha256: '{}'", "+f".repeat(32)), hash),
        ("from: K, apps: []", "`apps` is empty, so the key could use nothing; name apps, or leave it out"),
        ("from: K, user: ''", "`user` is not the id of a user: it has 1 to 256 bytes and no control characters"),
        ("from: K, role: operate, user: u", operator),
        ("from: K, role: operate, apps: dice", operator),
    ] {
        assert_eq!(
            key(&format!("name: a, {rest}")),
            message(&format!("server.auth.keys[0] (`a`): {problem}")),
            "{rest}"
        );
    }
    assert!(key("name: a, from: K, role: admin").contains("unknown variant `admin`, expected `use` or `operate`"));
    assert!(key("name: a, key: secret").contains("unknown field `key`"));
    let complete = "issuer: i, audience: a, jwks_url: 'https://id.example/keys'";
    let audience =
        "`audience` is missing, or has an empty entry: without it, tokens for any other service would be accepted";
    for (rest, problem) in [
        ("audience: a, jwks_url: 'https://k'", "`issuer` is missing: the claim `iss` of its tokens"),
        ("issuer: i, jwks_url: 'https://k'", audience),
        ("issuer: i, audience: [a, ''], jwks_url: 'https://k'", audience),
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
        assert_eq!(error(&format!("{{oidc: {{{rest}}}}}")), message(&format!("server.auth.oidc: {problem}")), "{rest}");
    }
    let unknown = error(&format!("{{oidc: {{{complete}, algorithms: [HS256]}}}}"));
    assert!(unknown.contains("unknown variant `HS256`, expected one of `RS256`, `ES256`, `EdDSA`"), "{unknown}");
    assert_eq!(parse(&format!("server: {{auth: {{oidc: {{{complete}}}}}}}")).err(), None);
}

#[test]
fn triggers_are_off_unless_their_sources_are_named() {
    assert!(parse("").unwrap().server.triggers.is_empty());
    let server = |settings: &str| parse(&format!("server: {{{settings}}}")).map(|config| config.server);
    assert_eq!(server("triggers: pubsub").unwrap().triggers, [TriggerSource::Pubsub]);
    let both = server("triggers: [pubsub, eventarc], max_concurrent_triggers: 3").unwrap();
    assert_eq!(both.triggers, [TriggerSource::Pubsub, TriggerSource::Eventarc]);
    assert_eq!((both.max_concurrent_triggers.get(), ServerConfig::default().max_concurrent_triggers.get()), (3, 10));
    let error = server("triggers: [kafka]").unwrap_err();
    assert!(error.contains("unknown variant `kafka`, expected `pubsub` or `eventarc`"), "{error}");
    let error = server("max_concurrent_triggers: 0").unwrap_err();
    assert!(error.contains("integer `0`, expected a whole number from 1 on"), "{error}");
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
