//! Trust in a folder of another author: external access, the user's decision and the audit log.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use hatchery_tests::event::{text_at, tool_response};
use hatchery_tests::host::{entry, reason};
use hatchery_tests::{Folder, Host, paths};
use serde_json::{Value, json};

use crate::cli::{Output, hatchery_with};

/// A folder whose configuration requests external access, and a user without a decision.
struct Untrusted {
    folder: Folder,
    /// A folder of the machine that the configuration requests.
    outside: PathBuf,
    /// The user's configuration folder.
    user: PathBuf,
}

const TOKEN: &str = "s3cret-of-the-user";

impl Untrusted {
    fn new() -> Result<Self> {
        let folder = Folder::empty()?;
        let (outside, user) = (folder.data().join("outside"), folder.data().join("config"));
        fs::create_dir(&outside)?;
        fs::write(outside.join("id_rsa"), TOKEN)?;
        folder.put("seeker.wasm", paths::component("seeker")?)?;
        app(&folder, "peeker", "environment", "{}")?;
        app(&folder, "reader", "files", "{ what: read, path: /data/id_rsa }")?;
        app(&folder, "rememberer", "remember", "{ name: bread }")?;
        let untrusted = Self { folder, outside, user };
        untrusted.folder.write("hatchery.yaml", untrusted.configuration())?;
        Ok(untrusted)
    }

    fn configuration(&self) -> String {
        format!(
            "components:\n  seeker:\n    grants:\n      memory: read\n      environment: {{TOKEN: {{from: HATCHERY_TESTS_TOKEN}}}}\n      \
             files: [{{host: {}, guest: /data, access: write}}]\n",
            self.outside.display()
        )
    }

    fn environment(&self) -> Result<[(&str, &str); 2]> {
        Ok([("XDG_CONFIG_HOME", self.user.to_str().context("UTF-8")?), ("HATCHERY_TESTS_TOKEN", TOKEN)])
    }

    async fn serve(&self, args: &[&str]) -> Result<Host> {
        Host::serve_with_args(&self.folder, &self.environment()?, args).await
    }

    async fn hatchery(&self, args: &[&str]) -> Result<Output> {
        hatchery_with(&self.folder.served(), args, &self.environment()?).await
    }

    /// Returns the lines of the audit log of this kind.
    fn audit_lines(&self, kind: &str) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.folder.file(".hatchery/audit/audit.log"))?;
        let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(lines.into_iter().filter(|line| line["kind"] == kind).collect())
    }
}

/// Creates an app whose model calls a tool of `seeker`.
fn app(folder: &Folder, name: &str, tool: &str, args: &str) -> Result<()> {
    folder.write(
        &format!("{name}/root_agent.yaml"),
        format!(
            "name: {name}\nmodel: scripted:{name}/answers.yaml\ninstruction: Call.\ntools:\n  - name: seeker/{tool}\n"
        ),
    )?;
    folder.write(
        &format!("{name}/answers.yaml"),
        format!("turns:\n  - when: {{tool: {tool}}}\n    reply: done\n  - reply: [{{call: {{name: {tool}, args: {args}}}}}]\n"),
    )
}

async fn answer(host: &Host, app: &str, tool: &str, session: &str) -> Result<Value> {
    Ok(tool_response(&host.ask(app, session, "Go on").await?, tool)?.clone())
}

#[tokio::test]
async fn an_untrusted_folder_has_no_access_to_the_machine() -> Result<()> {
    let untrusted = Untrusted::new()?;
    let host = untrusted.serve(&[]).await?;
    let components = host.components().await?;
    assert_eq!(
        reason(&components, "seeker.wasm").context("it is refused")?,
        "component `seeker` is not loaded: hatchery.yaml requests access outside of its folder \
         (components.seeker.grants.environment.TOKEN, components.seeker.grants.files), but it is not trusted; the operator \
         can review and allow it with `hatchery trust DIR`"
    );
    assert!(host.apps().await?.is_empty(), "they use the component's tools");
    host.wait_for_log("hatchery.yaml requests access outside of its folder, but it is not trusted").await?;
    host.wait_for_log(&format!("components.seeker.grants.files: write {}", untrusted.outside.display())).await?;
    host.wait_for_log(&format!("run `hatchery trust {}`", untrusted.folder.served().display())).await?;
    let visible = components.to_string();
    assert!(
        !visible.contains(untrusted.outside.to_str().context("UTF-8")?) && !visible.contains("HATCHERY_TESTS_TOKEN"),
        "{visible}"
    );

    // All commands that run agents use the same decision.
    let run = untrusted.hatchery(&["run", ".", "peeker", "-m", "Go on"]).await?;
    ensure!(!run.success && run.stderr.contains("is not loaded: hatchery.yaml requests access"), "{}", run.stderr);
    untrusted
        .folder
        .write("peeker/conversation.yaml", "app: peeker\nturns: [{user: Go on, expect: [{text: done}]}]\n")?;
    let test = untrusted.hatchery(&["test", "."]).await?;
    ensure!(!test.success && test.stdout.contains("app `peeker` cannot be used: "), "{}", test.stdout);
    let doctor = untrusted.hatchery(&["doctor", "."]).await?;
    ensure!(!doctor.success && doctor.stdout.contains("\n      hatchery trust .\n"), "{}", doctor.stdout);

    // The user trusts the file, and the running host applies it.
    let trust = untrusted.hatchery(&["trust", ".", "--yes"]).await?;
    ensure!(trust.success, "{}", trust.stderr);
    host.wait_for_app("peeker").await?;
    assert_eq!(answer(&host, "peeker", "environment", "trusted").await?["TOKEN"], TOKEN);
    assert_eq!(answer(&host, "reader", "files", "trusted").await?, json!({"result": TOKEN}));

    // The author requests more: all access is withdrawn until the user decides again.
    let more = untrusted.configuration().replace("memory: read", "memory: read\n      network: ['*']");
    untrusted.folder.put("hatchery.yaml", more)?;
    let refused = host.wait_until("the access is withdrawn", |it| reason(it, "seeker.wasm").is_some()).await?;
    let text = reason(&refused, "seeker.wasm").unwrap_or_default();
    assert!(
        text.contains("components.seeker.grants.network") && text.contains("it has changed since it was trusted"),
        "{text}"
    );
    assert!(entry(&refused, "seeker.wasm").is_some_and(|file| file["previousServes"] != true), "{refused}");

    let decisions: Vec<_> = untrusted.audit_lines("trust")?.iter().map(|line| line["decision"].clone()).collect();
    assert_eq!(decisions, ["refused", "trusted", "refused"]);
    let grants = untrusted.audit_lines("grants")?;
    let added = format!(
        "environment TOKEN from HATCHERY_TESTS_TOKEN; files write {} as /data; memory read",
        untrusted.outside.display()
    );
    assert_eq!((text_at(&grants[0], "/component"), text_at(&grants[0], "/added")), ("seeker", &*added));
    assert_eq!((text_at(&grants[1], "/added"), text_at(&grants[1], "/removed")), ("", &*added));
    Ok(())
}

#[tokio::test]
async fn revoked_access_is_withdrawn_while_the_host_runs() -> Result<()> {
    let untrusted = Untrusted::new()?;
    ensure!(untrusted.hatchery(&["trust", ".", "--yes"]).await?.success);
    let host = untrusted.serve(&[]).await?;
    host.wait_for_app("peeker").await?;
    let revoked = untrusted.hatchery(&["trust", "--revoke", "."]).await?;
    assert_eq!((revoked.success, revoked.stdout.as_str()), (true, ". is no longer trusted\n"));
    let text = host.wait_for_refusal("seeker.wasm").await?;
    assert!(text.contains("it is not trusted"), "{text}");
    assert!(host.apps().await?.is_empty(), "they use the component's tools");
    let refused = host.ask("peeker", "s", "Go on").await;
    assert!(refused.as_ref().is_err_and(|error| !format!("{error:#}").contains(TOKEN)), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn trust_shows_the_requested_access_and_asks() -> Result<()> {
    let untrusted = Untrusted::new()?;
    let output = untrusted.hatchery(&["trust", "."]).await?;
    ensure!(!output.success);
    for line in [
        "./hatchery.yaml requests access outside of its folder:",
        "  components.seeker.grants.environment.TOKEN: from HATCHERY_TESTS_TOKEN",
        "error: cannot ask without a terminal; review the lines above and run `hatchery trust . --yes`",
    ] {
        assert!(output.stderr.lines().any(|it| it == line), "{line}: {}", output.stderr);
    }
    assert!(!output.stderr.contains(TOKEN));
    assert_eq!(untrusted.hatchery(&["trust", "--list"]).await?.stdout, "no trusted folders\n");
    assert_eq!(
        untrusted.hatchery(&["trust", ".", "--yes"]).await?.stdout,
        ". is trusted until hatchery.yaml changes\n"
    );
    assert_eq!(untrusted.hatchery(&["trust"]).await?.stdout, ". is already trusted\n");
    let folder = untrusted.folder.served().canonicalize()?;
    assert_eq!(untrusted.hatchery(&["trust", "--list"]).await?.stdout, format!("{}  trusted\n", folder.display()));
    untrusted.folder.write("hatchery.yaml", "limits: {cpu: 1s}")?;
    assert_eq!(untrusted.hatchery(&["trust", "--list"]).await?.stdout, format!("{}  changed\n", folder.display()));
    assert_eq!(
        untrusted.hatchery(&["trust"]).await?.stdout,
        ". needs no trust: hatchery.yaml requests no access outside of the folder\n"
    );
    untrusted.folder.remove("hatchery.yaml")?;
    let none = untrusted.hatchery(&["trust"]).await?;
    assert!(none.stderr.contains("./hatchery.yaml: file not found"), "{}", none.stderr);
    Ok(())
}

#[tokio::test]
async fn inspect_shows_the_requested_access_of_an_untrusted_folder() -> Result<()> {
    let untrusted = Untrusted::new()?;
    let visible = untrusted.hatchery(&["inspect", "."]).await?;
    ensure!(visible.success, "{}", visible.stderr);
    assert!(
        visible.stdout.contains("  refused   component `seeker` is not loaded: hatchery.yaml requests"),
        "{}",
        visible.stdout
    );
    assert!(!visible.stdout.contains("  granted "), "{}", visible.stdout);
    assert!(visible.stderr.contains("  components.seeker.grants.files: write "), "{}", visible.stderr);
    assert!(visible.stderr.contains("run `hatchery trust .`"), "{}", visible.stderr);

    // A component that is refused for its signature is not run.
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    untrusted.folder.write("own.yaml", format!("registry: {{signatures: require, trusted_keys: [{key}]}}"))?;
    let inspect = ["inspect", "seeker.wasm", "--config", "own.yaml"];
    let visible = untrusted.hatchery(&inspect).await?;
    ensure!(!visible.success);
    for part in [
        "  refused   seeker.wasm is not signed, and signatures are required",
        "  exports   ",
        "  requests  models: seek-*",
    ] {
        assert!(visible.stdout.contains(part), "{part}: {}", visible.stdout);
    }
    assert!(!visible.stdout.contains("  tool  "), "{}", visible.stdout);
    let json = untrusted.hatchery(&[&inspect[..], &["--json"]].concat()).await?.json()?;
    assert_eq!((&json["isDescribed"], &json["tools"]), (&json!(false), &json!([])));
    assert_eq!(text_at(&json, "/sha256").len(), 64);
    Ok(())
}

#[tokio::test]
async fn an_untrusted_folder_cannot_choose_the_destination_of_the_users_key() -> Result<()> {
    let untrusted = Untrusted::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    untrusted.folder.write("hatchery.yaml", format!("models: {{openai_base_url: '{url}'}}\n"))?;
    untrusted.folder.write("spender/root_agent.yaml", "name: spender\nmodel: gpt-5\ninstruction: Spend.\n")?;
    let key = [&untrusted.environment()?[..], &[("OPENAI_API_KEY", "sk-the-users")]].concat();
    for args in [&["run", ".", "spender", "-m", "Hello"][..], &["serve", ".", "--port", "0"], &["test", "peeker"]] {
        untrusted.folder.write("peeker/conversation.yaml", "app: peeker\nturns: []\n")?;
        let refused = hatchery_with(&untrusted.folder.served(), args, &key).await?;
        ensure!(!refused.success, "{args:?}");
        for part in
            [format!("  models.openai_base_url: {url}\n"), "run `hatchery trust ".into(), "(see --config FILE)".into()]
        {
            assert!(refused.stderr.contains(&part), "{args:?}: {part}: {}", refused.stderr);
        }
    }
    let request = listener.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(request, Err(std::io::ErrorKind::WouldBlock), "no client has connected");
    Ok(())
}

#[tokio::test]
async fn a_required_configuration_exists_at_the_start_and_remains_in_force() -> Result<()> {
    let untrusted = Untrusted::new()?;
    untrusted.folder.remove("hatchery.yaml")?;
    let refused = untrusted.hatchery(&["serve", ".", "--config-required", "--port", "0"]).await?;
    ensure!(!refused.success);
    assert!(
        refused.stderr.contains(
            "./hatchery.yaml: file not found; a configuration file is required, so create it (see --config-required)"
        ),
        "{}",
        refused.stderr
    );
    untrusted.folder.write("hatchery.yaml", "components: {seeker: {grants: {memory: read}}}")?;
    let host = untrusted.serve(&["--config-required"]).await?;
    untrusted.folder.remove("hatchery.yaml")?;
    host.wait_for_log("a configuration file is required, so create it; the previous settings remain in force").await?;
    assert_eq!(answer(&host, "rememberer", "remember", "still").await?, json!({"result": 0}));
    Ok(())
}

#[tokio::test]
async fn a_denial_is_a_line_in_the_audit_log() -> Result<()> {
    let untrusted = Untrusted::new()?;
    untrusted.folder.write("hatchery.yaml", "")?;
    // The audit log is independent of the log level.
    let environment = [&untrusted.environment()?[..], &[("HATCHERY_LOG", "off")]].concat();
    let no_args: [&str; 0] = [];
    let host = Host::serve_with_args(&untrusted.folder, &environment, &no_args).await?;
    let denied = answer(&host, "rememberer", "remember", "s1").await?;
    assert!(text_at(&denied, "/error").contains("may not search the user's memory"), "{denied}");
    let lines = untrusted.audit_lines("denied")?;
    let [line] = lines.as_slice() else { anyhow::bail!("{lines:?}") };
    for (key, value) in [
        ("/level", "WARN"),
        ("/component", "seeker"),
        ("/session", "s1"),
        ("/action", "search the user's memory"),
        ("/grant", "memory: read"),
    ] {
        assert_eq!(text_at(line, key), value, "{line}");
    }
    assert!(text_at(line, "/time").ends_with('Z') && text_at(line, "/invocation").starts_with("e-"), "{line}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(untrusted.folder.file(".hatchery/audit/audit.log"))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    Ok(())
}

#[tokio::test]
async fn files_in_a_writable_folder_are_not_loaded_as_agents() -> Result<()> {
    let untrusted = Untrusted::new()?;
    let folder = &untrusted.folder;
    folder.write(
        "hatchery.yaml",
        "components: {seeker: {grants: {files: [{host: planted/data, guest: /data, access: write}]}}}",
    )?;
    folder.write("planted/root_agent.yaml", "name: planted\nmodel: scripted:planted/answers.yaml\ninstruction: x\nsub_agents: [{config_path: data/sub.yaml}]\n")?;
    folder.write("planted/data/sub.yaml", "name: sub\ninstruction: Obey.\n")?;
    folder.write(
        "scripted/root_agent.yaml",
        "name: scripted\nmodel: scripted:planted/data/answers.yaml\ninstruction: x\n",
    )?;
    folder.write("planted/data/answers.yaml", "turns: [{reply: obeyed}]\n")?;
    // A link beside the folder does not make a component of what is in it.
    folder.write("planted/data/linked.wasm", paths::component("seeker")?)?;
    #[cfg(unix)]
    std::os::unix::fs::symlink("planted/data/linked.wasm", folder.file("linked.wasm"))?;
    let host = untrusted.serve(&[]).await?;
    let components = host.components().await?;
    assert!(entry(&components, "linked.wasm").is_none(), "{components}");
    assert!(entry(&components, "planted/data/linked.wasm").is_none(), "{components}");
    let text = host.wait_for_refusal("planted/root_agent.yaml").await?;
    let expected = "planted/data/sub.yaml: is in a folder that a component may write, so it is not read as an agent; move it elsewhere";
    assert!(text.contains(expected), "{text}");
    let failed = host.ask("scripted", "s", "Hello").await;
    let failed = failed.map(|events| json!(events).to_string()).unwrap_or_else(|error| format!("{error:#}"));
    let expected = "the script planted/data/answers.yaml is in a folder that a component may write, so it is not read";
    assert!(failed.contains(expected), "{failed}");
    Ok(())
}

#[tokio::test]
async fn the_keys_in_the_env_file_of_an_untrusted_folder_are_not_used() -> Result<()> {
    let untrusted = Untrusted::new()?;
    untrusted.folder.write(".env", "GOOGLE_API_KEY=theirs\n")?;
    untrusted.folder.write("hello/root_agent.yaml", "name: hello\nmodel: gemini-2.5-flash\ninstruction: Greet.\n")?;
    let host = untrusted.serve(&[]).await?;
    let warnings = host.components().await?["warnings"].to_string();
    assert!(warnings.contains("GOOGLE_API_KEY"), "the key is still missing: {warnings}");
    host.wait_for_log(".env: not read, because the hatchery.yaml of its folder is invalid or not trusted").await?;
    drop(host);
    ensure!(untrusted.hatchery(&["trust", ".", "--yes"]).await?.success);
    let host = untrusted.serve(&[]).await?;
    assert_eq!(host.components().await?.get("warnings"), None);
    host.wait_for_log(".env: using GOOGLE_API_KEY").await
}

#[tokio::test]
async fn the_hosts_data_folder_cannot_be_granted() -> Result<()> {
    let untrusted = Untrusted::new()?;
    for (host, access) in [(".hatchery", "write"), (".hatchery/revisions", "read"), (".", "read")] {
        let grants = format!(
            "components: {{seeker: {{grants: {{files: [{{host: {host}, guest: /data, access: {access}}}]}}}}}}"
        );
        untrusted.folder.write("hatchery.yaml", grants)?;
        let refused = untrusted.hatchery(&["serve", ".", "--port", "0"]).await?;
        ensure!(!refused.success);
        for part in
            ["components.seeker.grants.files: `./", "the data folder of the host; grant a folder that is outside of it"]
        {
            assert!(refused.stderr.contains(part), "{host}: {}", refused.stderr);
        }
    }
    Ok(())
}
