//! Scripted models from YAML files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hatchery_core::{Content, LlmRequest, Model, ModelErrorKind, ModelResolver, StreamingMode};
use hatchery_models::scripted::Scripted;
use hatchery_models::{ModelProviders, Settings, WritableFolders};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{call_error, content, deltas, generate, parts, request, stream, texts, user_request};

fn model(directory: &Path, yaml: &str) -> Arc<dyn Model> {
    fs::write(directory.join("answers.yaml"), yaml).unwrap();
    named(directory, "scripted:answers.yaml")
}

fn named(directory: &Path, name: &str) -> Arc<dyn Model> {
    let settings = Settings { scripts_dir: directory.into(), ..Settings::default() };
    ModelProviders::with_defaults(settings).model(name).unwrap()
}

async fn text(model: &Arc<dyn Model>, request: LlmRequest) -> String {
    texts(&[generate(model.as_ref(), request).await.unwrap()]).concat()
}

async fn wrong(yaml: &str) -> String {
    let directory = TempDir::new().unwrap();
    let error = call_error(model(directory.path(), yaml).as_ref(), user_request("x"), StreamingMode::Off).await;
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    let start = "the script answers.yaml is wrong: ";
    error.message.strip_prefix(start).unwrap_or_else(|| panic!("{error}")).to_owned()
}

const DICE: &str = r#"
turns:
  - when: { user: [roll, throw] }
    reply:
      - text: "Let me roll."
      - call: { name: roll_die, id: c1, args: { sides: "{number}" } }
  - when: { tool: roll_die, result: error }
    reply: "The die is lost."
  - when: { tool: [roll_die, flip], step: 2 }
    reply:
      - thought: "That was quick."
      - text: "You rolled {tool.result}."
        chunks: 3
  - when: { user: image }
    reply:
      - part: { inlineData: { mimeType: image/png, data: AAEC } }
  - when: { system: french, context: bonjour }
    reply: "Salut"
  - when: { user: slow }
    delay_ms: 500
    chunk_delay_ms: 20
    reply: [ { text: ["Here ", "I am."] } ]
  - when: { user: long }
    finish_reason: MAX_TOKENS
    reply: "It was a dark and"
  - when: { user: break }
    reply: "I was about to"
    error: { code: 503, message: "out of order", after: 1 }
  - when: { user: busy }
    error: { code: rate_limited, message: "later, {user}" }
  - reply: "I only know dice."
"#;

fn answered(result: serde_json::Value) -> LlmRequest {
    request([
        Content::user("roll 20"),
        content(json!({ "role": "model", "parts": [{ "functionCall": { "name": "roll_die" } }] })),
        content(
            json!({ "role": "user", "parts": [{ "functionResponse": { "name": "roll_die", "response": result } }] }),
        ),
    ])
}

#[tokio::test]
async fn a_byte_order_mark_before_a_script_is_skipped() {
    let directory = TempDir::new().unwrap();
    let model = model(directory.path(), "\u{feff}turns:\n  - when: { user: hi }\n    reply: Hello\n");
    assert_eq!(text(&model, user_request("hi")).await, "Hello");
}

#[tokio::test(start_paused = true)]
async fn every_key_of_the_format_has_its_effect() {
    let directory = TempDir::new().unwrap();
    let model = model(directory.path(), DICE);
    let call = generate(model.as_ref(), user_request("Throw a d20")).await.unwrap();
    let expected = json!([
        { "text": "Let me roll." },
        { "functionCall": { "id": "c1", "name": "roll_die", "args": { "sides": 20 } } },
    ]);
    assert_eq!(serde_json::to_value(parts(&[call])).unwrap(), expected);
    assert_eq!(text(&model, answered(json!({ "error": "lost" }))).await, "The die is lost.");
    let rolled = deltas(model.as_ref(), answered(json!({ "result": 17 }))).await;
    assert_eq!(texts(&rolled), ["That was quick.", "You ", "rolle", "d 17."]);
    assert_eq!(parts(&rolled).iter().filter(|part| part.thought).count(), 1);
    let image = generate(model.as_ref(), user_request("an image")).await.unwrap();
    assert_eq!(
        serde_json::to_value(parts(&[image])).unwrap(),
        json!([{ "inlineData": { "mimeType": "image/png", "data": "AAEC" } }])
    );
    let context =
        content(json!({ "role": "user", "parts": [{ "text": "For context:" }, { "text": "[a] quote: Bonjour" }] }));
    let mut french = request([Content::user("hi"), context]);
    french.system_instructions.push("Speak French.".into());
    assert_eq!(text(&model, french).await, "Salut");
    let start = tokio::time::Instant::now();
    assert_eq!(texts(&deltas(model.as_ref(), user_request("slow")).await), ["Here ", "I am."]);
    assert_eq!(start.elapsed().as_millis(), 520);
    let long = generate(model.as_ref(), user_request("long")).await.unwrap();
    assert_eq!(long.error_code.as_deref(), Some("MAX_TOKENS"));
    let broken = stream(model.as_ref(), user_request("break")).await;
    assert_eq!(texts(&[broken[0].clone().unwrap()]), ["I was about to"]);
    let error = broken[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.status, error.message.as_str()), (ModelErrorKind::Server, Some(503), "out of order"));
    let busy = call_error(model.as_ref(), user_request("busy"), StreamingMode::On).await;
    assert_eq!((busy.kind, busy.message.as_str()), (ModelErrorKind::RateLimited, "later, busy"));
    assert_eq!(text(&model, user_request("hello")).await, "I only know dice.");
}

#[tokio::test]
async fn every_error_code_has_its_kind() {
    let directory = TempDir::new().unwrap();
    let codes = [
        ("auth", ModelErrorKind::Auth),
        ("bad_request", ModelErrorKind::BadRequest),
        ("server", ModelErrorKind::Server),
        ("network", ModelErrorKind::Network),
        ("timeout", ModelErrorKind::Timeout),
        ("bad_response", ModelErrorKind::BadResponse),
        ("401", ModelErrorKind::Auth),
        ("400", ModelErrorKind::BadRequest),
        ("504", ModelErrorKind::Timeout),
    ];
    for (code, kind) in codes {
        fs::write(directory.path().join(code), format!("turns: [{{ error: {{ code: {code}, message: m }} }}]"))
            .unwrap();
        let model = named(directory.path(), &format!("scripted:{code}"));
        assert_eq!(call_error(model.as_ref(), user_request("x"), StreamingMode::Off).await.kind, kind, "{code}");
    }
}

#[tokio::test]
async fn a_request_without_a_matching_turn_is_an_error_that_names_the_file_and_the_text() {
    let directory = TempDir::new().unwrap();
    let model = model(directory.path(), "turns: [{ when: { user: a }, reply: b }]");
    let error = call_error(model.as_ref(), user_request("zzz"), StreamingMode::Off).await;
    assert_eq!(
        error.message,
        "no turn of answers.yaml matches: the last user text is \"zzz\"; add a turn whose `when` matches it, or a last one without `when`, \
         which always matches"
    );
}

#[tokio::test]
async fn a_missing_file_is_an_error_that_names_it_and_is_read_once_it_is_there() {
    let directory = TempDir::new().unwrap();
    let model = named(directory.path(), "scripted:answers.yaml");
    let error = call_error(model.as_ref(), user_request("x"), StreamingMode::Off).await;
    assert_eq!(
        error.message,
        "cannot read the script answers.yaml: the served folder has no such file; check the name after `scripted:`, which begins at \
         that folder, and which folder is served"
    );
    fs::write(directory.path().join("answers.yaml"), "turns: [{ reply: here }]").unwrap();
    assert_eq!(text(&model, user_request("x")).await, "here");
}

#[tokio::test]
async fn a_changed_file_is_read_again() {
    let directory = TempDir::new().unwrap();
    let model = model(directory.path(), "turns: [{ reply: first }]");
    assert_eq!(text(&model, user_request("x")).await, "first");
    fs::write(directory.path().join("answers.yaml"), "turns: [{ reply: the second }]").unwrap();
    assert_eq!(text(&model, user_request("x")).await, "the second");
    fs::write(directory.path().join("answers.yaml"), "turns: 5").unwrap();
    call_error(model.as_ref(), user_request("x"), StreamingMode::Off).await;
}

#[test]
fn a_model_name_cannot_leave_the_scripts_folder() {
    let providers =
        ModelProviders::with_defaults(Settings { scripts_dir: "/srv/agents".into(), ..Settings::default() });
    for name in [
        "/etc/passwd",
        "../answers.yaml",
        "dice/../../answers.yaml",
        "dice/..",
        ".",
        "./answers.yaml",
        ".env",
        ".hatchery/sessions.db",
        "dice/.secret.yaml",
    ] {
        let error = providers.model(&format!("scripted:{name}")).map(|_| ()).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::UnknownModel, "{name}");
        assert_eq!(
            error.message,
            "a script's name is a path below the scripts folder, without `.`, `..` and hidden parts; put the file there and write \
             `scripted:<file>`, such as `scripted:dice/answers.yaml`",
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_app_finds_its_scripts_when_its_own_folder_is_served() {
    let directory = TempDir::new().unwrap();
    let app = directory.path().join("dice");
    fs::create_dir(&app).unwrap();
    fs::write(app.join("answers.yaml"), "turns: [{ reply: found }]").unwrap();
    for folder in [directory.path(), &app] {
        assert_eq!(text(&named(folder, "scripted:dice/answers.yaml"), user_request("x")).await, "found");
    }
    // A folder of that name comes first, and other names are not omitted.
    fs::create_dir(app.join("dice")).unwrap();
    for name in ["dice/answers.yaml", "other/answers.yaml"] {
        call_error(named(&app, &format!("scripted:{name}")).as_ref(), user_request("x"), StreamingMode::Off).await;
    }
}

#[tokio::test]
async fn a_link_may_lead_inside_the_scripts_folder_but_not_out_of_it() {
    let (outer, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    // The folder itself may be a link.
    fs::create_dir(outer.path().join("real")).unwrap();
    let folder = outer.path().join("scripts");
    symlink("real", &folder).unwrap();
    fs::write(folder.join("answers.yaml"), "turns: [{ reply: inside }]").unwrap();
    fs::write(other.path().join("secret.yaml"), "turns: [{ reply: secret }]").unwrap();
    symlink("answers.yaml", folder.join("inside.yaml")).unwrap();
    symlink(other.path().join("secret.yaml"), folder.join("outside.yaml")).unwrap();
    symlink(other.path(), folder.join("elsewhere")).unwrap();
    assert_eq!(text(&named(&folder, "scripted:inside.yaml"), user_request("x")).await, "inside");
    for name in ["outside.yaml", "elsewhere/secret.yaml"] {
        let error =
            call_error(named(&folder, &format!("scripted:{name}")).as_ref(), user_request("x"), StreamingMode::Off)
                .await;
        assert_eq!(
            error.message,
            format!("the script {name} is a link that leads out of the scripts folder; put the file itself there")
        );
    }
    let anywhere: Arc<dyn Model> = Arc::new(Scripted::file(folder.join("outside.yaml")));
    assert_eq!(text(&anywhere, user_request("x")).await, "secret");
}

#[tokio::test]
async fn a_file_that_a_component_may_write_is_not_read_as_a_script() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("data/below")).unwrap();
    fs::write(root.join("data/below/answers.yaml"), "turns: [{ reply: planted }]").unwrap();
    symlink("data/below/answers.yaml", root.join("answers.yaml")).unwrap();
    fs::write(root.join("own.yaml"), "turns: [{ reply: own }]").unwrap();
    let writable_folders = WritableFolders::default();
    let settings =
        Settings { scripts_dir: root.clone(), writable_folders: writable_folders.clone(), ..Settings::default() };
    let providers = ModelProviders::with_defaults(settings);
    let [own, planted, link] = ["own.yaml", "data/below/answers.yaml", "answers.yaml"]
        .map(|name| providers.model(&format!("scripted:{name}")).unwrap());
    assert_eq!(text(&planted, user_request("x")).await, "planted", "nobody may write there yet");
    writable_folders.set(vec![root.join("data")]);
    for (model, name) in [(&planted, "data/below/answers.yaml"), (&link, "answers.yaml")] {
        let error = call_error(model.as_ref(), user_request("x"), StreamingMode::Off).await;
        assert_eq!(
            error.message,
            format!(
                "the script {name} is in a folder that a component may write, so it is not read; move it elsewhere"
            )
        );
    }
    assert_eq!(text(&own, user_request("x")).await, "own");
}

#[tokio::test]
async fn a_file_that_becomes_a_link_out_of_the_folder_is_no_longer_read() {
    let (directory, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let model = model(directory.path(), "turns: [{ reply: first }]");
    assert_eq!(text(&model, user_request("x")).await, "first");
    fs::write(other.path().join("secret"), "turns: [{ reply: a secret }]").unwrap();
    fs::remove_file(directory.path().join("answers.yaml")).unwrap();
    symlink(other.path().join("secret"), directory.path().join("answers.yaml")).unwrap();
    let error = call_error(model.as_ref(), user_request("x"), StreamingMode::Off).await;
    assert!(error.message.contains(" leads out of the scripts folder;"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_not_regular_is_rejected_without_opening_it() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("folder")).unwrap();
    assert!(Command::new("mkfifo").arg(directory.path().join("pipe")).status().unwrap().success());
    for name in ["folder", "pipe"] {
        let model = named(directory.path(), &format!("scripted:{name}"));
        let error = call_error(model.as_ref(), user_request("x"), StreamingMode::Off).await;
        assert_eq!(error.message, format!("the script {name} is not a regular file"));
    }
    let endless = call_error(&Scripted::file("/dev/zero"), user_request("x"), StreamingMode::Off).await;
    assert_eq!(endless.message, "the script zero is not a regular file");
}

#[tokio::test]
async fn a_file_of_more_than_four_mebibytes_is_rejected() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("big.yaml");
    fs::File::create(&path).unwrap().set_len(4 * 1024 * 1024 + 1).unwrap();
    let error =
        call_error(named(directory.path(), "scripted:big.yaml").as_ref(), user_request("x"), StreamingMode::Off).await;
    assert_eq!(error.message, "the script big.yaml has more than 4194304 bytes, which is the most");
}

#[tokio::test]
async fn errors_do_not_contain_values_of_the_file() {
    let cases = [
        "s3cr3t",
        "s3cr3t:s3cr3t:0",
        "- s3cr3t\n- s3cr3t",
        "turns: s3cr3t",
        "turns: [s3cr3t]",
        "turns: [{ reply: x, delay_ms: s3cr3t }]",
        "turns: [{ error: { code: s3cr3t, message: x } }]",
        "turns: [{ error: { code: 'x, expected s3cr3t', message: x } }]",
        "turns: [{ error: { code: '\"x, expected \"s3cr3t', message: x } }]",
        "turns: [{ reply: [{ call: s3cr3t }] }]",
        "turns: [{ reply: [{ call: { name: x, args: s3cr3t } }] }]",
        "turns: [{ reply: [{ part: s3cr3t }] }]",
        "turns: [{ reply: [{ part: { inlineData: { mimeType: a/b, data: s3cr3t } } }] }]",
        "turns: [{ reply: [{ part: { functionCall: { name: x, args: s3cr3t } } }] }]",
        "turns: !s3cr3t x",
        "turns: *s3cr3t",
        "turns: [s3cr3t",
        "'s3cr3t",
        "%s3cr3t",
        "@s3cr3t",
        "turns: []\nturns: [s3cr3t]",
        "s3cr3t: x",
        "turns: [{ s3cr3t: x }]",
    ];
    for yaml in cases {
        let message = wrong(yaml).await;
        assert!(!message.contains("s3cr3t"), "{yaml}: {message}");
    }
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("binary"), b"s3cr3t\xff").unwrap();
    let binary = named(directory.path(), "scripted:binary");
    let error = call_error(binary.as_ref(), user_request("x"), StreamingMode::Off).await;
    assert!(error.message.ends_with(" is wrong: it is not UTF-8 text"), "{error}");
}

#[tokio::test]
async fn an_unknown_key_is_an_error_with_its_position() {
    let message = wrong("turns:\n  - when: { usr: x }\n    reply: y\n").await;
    assert!(
        message.contains("unknown field, expected one of `user`, `tool`, `result`, `system`, `context`, `step`"),
        "{message}"
    );
    assert!(message.ends_with(" at line 2 column 13"), "{message}");
    for yaml in [
        "turns: []\nturn: 1",
        "turns: [{ reply: x, dealy_ms: 5 }]",
        "turns: [{ reply: [{ text: x, chunk: 5 }] }]",
        "turns: [{ reply: [{ call: { name: x, arg: 5 } }] }]",
        "turns: [{ error: { code: 500, message: x, aftr: 5 } }]",
    ] {
        let message = wrong(yaml).await;
        assert!(message.contains("unknown field") && message.contains(" at line "), "{message}");
    }
}

#[tokio::test]
async fn an_invalid_value_is_an_error_with_its_position() {
    let cases = [
        ("turns: [{ when: { user: x } }]", "a turn needs a `reply` or an `error`"),
        ("turns: [{ reply: x, when: { step: 0 } }]", "`step` counts from 1"),
        ("turns: [{ reply: [{ text: x, chunks: 0 }] }]", "`chunks` is at least 1"),
        (
            "turns: [{ reply: [{ text: [x, y], chunks: 2 }] }]",
            "`chunks` goes with one text; a list of texts is streamed unchanged",
        ),
        (
            "turns: [{ reply: [{ call: { name: x }, chunks: 2 }] }]",
            "`chunks` goes with `text` or `thought`; calls and parts are streamed whole",
        ),
        (
            "turns: [{ reply: [{ text: x, call: { name: y } }] }]",
            "an item of `reply` is one of `text`, `thought`, `call` and `part`",
        ),
        ("turns: [{ reply: [{}] }]", "an item of `reply` is one of `text`, `thought`, `call` and `part`"),
        ("turns: [{ reply: 5 }]", "expected a string or a list of `text`, `thought`, `call` and `part`"),
        ("turns: [{ reply: x, when: { user: 5 } }]", "expected a string or a list of strings"),
        (
            "turns: [{ error: { code: 200, message: x } }]",
            "expected an HTTP status from 400 to 599, or one of auth, rate_limited, bad_request, server, network, timeout, bad_response",
        ),
        ("turns: [{ error: { code: oops, message: x } }]", "invalid value: string, expected an HTTP status"),
        ("turns: [x]", "invalid type: string, expected a mapping"),
        ("{}", "missing field `turns`"),
    ];
    for (yaml, expected) in cases {
        let message = wrong(yaml).await;
        assert!(message.contains(expected), "{yaml}: {message}");
        assert!(yaml == "{}" || message.contains(" at line 1 column "), "{yaml}: {message}");
    }
}

#[tokio::test]
async fn a_colon_in_a_text_without_quotes_is_explained() {
    let message = wrong("turns:\n  - reply: a: b\n").await;
    let expected = "mapping values are not allowed in this context; put a value that contains `: ` in quotes";
    assert!(message.starts_with(expected) && message.contains(" at line 2 column "), "{message}");
}
