//! A folder of somebody else: what its `hatchery.yaml` is given, who decides, and what is written down.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use hatchery_tests::event::{text_at, tool_response};
use hatchery_tests::host::{entry, reason};
use hatchery_tests::{Folder, Host, paths};
use serde_json::{Value, json};

use crate::cli::{Output, hatchery_with};

/// A folder whose author wants what is not theirs, and a user who has decided nothing yet.
struct Stranger {
    folder: Folder,
    /// What the machine has outside of the folder.
    outside: PathBuf,
    /// The user's configuration.
    user: PathBuf,
}

const TOKEN: &str = "s3cret-of-the-user";

impl Stranger {
    fn new() -> Result<Self> {
        let folder = Folder::empty()?;
        let (outside, user) = (folder.data().join("outside"), folder.data().join("config"));
        fs::create_dir(&outside)?;
        fs::write(outside.join("id_rsa"), TOKEN)?;
        folder.put("seeker.wasm", paths::component("seeker")?)?;
        app(&folder, "peeker", "environment", "{}")?;
        app(&folder, "reader", "files", "{ what: read, path: /data/id_rsa }")?;
        app(&folder, "rememberer", "remember", "{ name: bread }")?;
        let stranger = Self { folder, outside, user };
        stranger.folder.write("hatchery.yaml", stranger.greedy())?;
        Ok(stranger)
    }

    fn greedy(&self) -> String {
        format!(
            "components:\n  seeker:\n    grants:\n      memory: true\n      environment: {{TOKEN: {{from: HATCHERY_TESTS_TOKEN}}}}\n      \
             files: [{{host: {}, guest: /data, access: write}}]\n",
            self.outside.display()
        )
    }

    fn environment(&self) -> Result<[(&str, &str); 2]> {
        Ok([("XDG_CONFIG_HOME", self.user.to_str().context("UTF-8")?), ("HATCHERY_TESTS_TOKEN", TOKEN)])
    }

    async fn serve(&self, args: &[&str]) -> Result<Host> {
        Host::serve_with(&self.folder, &self.environment()?, args).await
    }

    async fn hatchery(&self, args: &[&str]) -> Result<Output> {
        hatchery_with(&self.folder.served(), args, &self.environment()?).await
    }

    /// The lines of the audit log of this kind.
    fn audited(&self, kind: &str) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.folder.file(".hatchery/audit/audit.log"))?;
        let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(lines.into_iter().filter(|line| line["kind"] == kind).collect())
    }
}

/// An app whose model calls a tool of `seeker`.
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
    let stranger = Stranger::new()?;
    let host = stranger.serve(&[]).await?;
    let components = host.components().await?;
    assert_eq!(
        reason(&components, "seeker.wasm").context("it is refused")?,
        "component `seeker` is not loaded: hatchery.yaml requests access outside of its folder \
         (components.seeker.grants.environment.TOKEN, components.seeker.grants.files), but it is not trusted; the operator \
         can review and allow it with `hatchery trust DIR`"
    );
    assert!(host.apps().await?.is_empty(), "they use the component's tools");
    host.until_logged("hatchery.yaml requests access outside of its folder, but it is not trusted").await?;
    host.until_logged(&format!("components.seeker.grants.files: write {}", stranger.outside.display())).await?;
    host.until_logged(&format!("run `hatchery trust {}`", stranger.folder.served().display())).await?;
    let shown = components.to_string();
    assert!(
        !shown.contains(stranger.outside.to_str().context("UTF-8")?) && !shown.contains("HATCHERY_TESTS_TOKEN"),
        "{shown}"
    );

    // Each verb that runs agents obeys the same decision.
    let run = stranger.hatchery(&["run", ".", "peeker", "-m", "Go on"]).await?;
    ensure!(!run.success && run.stderr.contains("is not loaded: hatchery.yaml requests access"), "{}", run.stderr);
    stranger
        .folder
        .write("peeker/conversation.yaml", "app: peeker\nturns: [{user: Go on, expect: [{text: done}]}]\n")?;
    let test = stranger.hatchery(&["test", "."]).await?;
    ensure!(!test.success && test.stdout.contains("app `peeker` not found"), "{}", test.stdout);
    let doctor = stranger.hatchery(&["doctor", "."]).await?;
    ensure!(!doctor.success && doctor.stdout.contains("\n      hatchery trust .\n"), "{}", doctor.stdout);

    // The user looks at the file and agrees: the host that runs already follows.
    let trust = stranger.hatchery(&["trust", ".", "--yes"]).await?;
    ensure!(trust.success, "{}", trust.stderr);
    host.until_app("peeker").await?;
    assert_eq!(answer(&host, "peeker", "environment", "trusted").await?["TOKEN"], TOKEN);
    assert_eq!(answer(&host, "reader", "files", "trusted").await?, json!({"result": TOKEN}));

    // The author wants more: all of it is withdrawn before anybody is asked.
    let more = stranger.greedy().replace("memory: true", "memory: true\n      network: ['*']");
    stranger.folder.put("hatchery.yaml", more)?;
    let refused = host.until("the rights are withdrawn", |it| reason(it, "seeker.wasm").is_some()).await?;
    let said = reason(&refused, "seeker.wasm").unwrap_or_default();
    assert!(
        said.contains("components.seeker.grants.network") && said.contains("it has changed since it was trusted"),
        "{said}"
    );
    assert!(entry(&refused, "seeker.wasm").is_some_and(|file| file["previousServes"] != true), "{refused}");

    let decisions: Vec<_> = stranger.audited("trust")?.iter().map(|line| line["decision"].clone()).collect();
    assert_eq!(decisions, ["refused", "trusted", "refused"]);
    let grants = stranger.audited("grants")?;
    let added = format!(
        "environment TOKEN from HATCHERY_TESTS_TOKEN; files write {} as /data; memory true",
        stranger.outside.display()
    );
    assert_eq!((text_at(&grants[0], "/component"), text_at(&grants[0], "/added")), ("seeker", &*added));
    assert_eq!((text_at(&grants[1], "/added"), text_at(&grants[1], "/removed")), ("", &*added));
    Ok(())
}

#[tokio::test]
async fn revoked_access_is_withdrawn_while_the_host_runs() -> Result<()> {
    let stranger = Stranger::new()?;
    ensure!(stranger.hatchery(&["trust", ".", "--yes"]).await?.success);
    let host = stranger.serve(&[]).await?;
    host.until_app("peeker").await?;
    let revoked = stranger.hatchery(&["trust", "--revoke", "."]).await?;
    assert_eq!((revoked.success, revoked.stdout.as_str()), (true, ". is trusted no more\n"));
    let said = host.until_refused("seeker.wasm").await?;
    assert!(said.contains("it is not trusted"), "{said}");
    Ok(())
}

#[tokio::test]
async fn trust_shows_the_requested_access_and_asks() -> Result<()> {
    let stranger = Stranger::new()?;
    let asked = stranger.hatchery(&["trust", "."]).await?;
    ensure!(!asked.success);
    for line in [
        "./hatchery.yaml requests access outside of its folder:",
        "  components.seeker.grants.environment.TOKEN: from HATCHERY_TESTS_TOKEN",
        "error: there is no terminal for the question; review the lines above and run `hatchery trust . --yes`",
    ] {
        assert!(asked.stderr.lines().any(|it| it == line), "{line}: {}", asked.stderr);
    }
    assert!(!asked.stderr.contains(TOKEN));
    assert_eq!(stranger.hatchery(&["trust", "--list"]).await?.stdout, "no folder is trusted\n");
    assert_eq!(stranger.hatchery(&["trust", ".", "--yes"]).await?.stdout, ". is trusted until hatchery.yaml changes\n");
    assert_eq!(stranger.hatchery(&["trust"]).await?.stdout, ". is trusted already\n");
    let folder = stranger.folder.served().canonicalize()?;
    assert_eq!(stranger.hatchery(&["trust", "--list"]).await?.stdout, format!("{}  trusted\n", folder.display()));
    stranger.folder.write("hatchery.yaml", "limits: {cpu: 1s}")?;
    assert_eq!(stranger.hatchery(&["trust", "--list"]).await?.stdout, format!("{}  changed since\n", folder.display()));
    assert_eq!(
        stranger.hatchery(&["trust"]).await?.stdout,
        ".: hatchery.yaml requests no access outside of the folder, so it needs no trust\n"
    );
    stranger.folder.remove("hatchery.yaml")?;
    let none = stranger.hatchery(&["trust"]).await?;
    assert!(none.stderr.contains("./hatchery.yaml: file not found"), "{}", none.stderr);
    Ok(())
}

#[tokio::test]
async fn inspect_shows_the_requested_access_of_an_untrusted_folder() -> Result<()> {
    let stranger = Stranger::new()?;
    let shown = stranger.hatchery(&["inspect", "."]).await?;
    ensure!(shown.success, "{}", shown.stderr);
    assert!(
        shown.stdout.contains("  refused   component `seeker` is not loaded: hatchery.yaml requests"),
        "{}",
        shown.stdout
    );
    assert!(!shown.stdout.contains("  granted "), "{}", shown.stdout);
    assert!(shown.stderr.contains("  components.seeker.grants.files: write "), "{}", shown.stderr);
    assert!(shown.stderr.contains("run `hatchery trust .`"), "{}", shown.stderr);

    // What signatures keep out is not run.
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    stranger.folder.write("own.yaml", format!("registry: {{signatures: require, trusted_keys: [{key}]}}"))?;
    let inspect = ["inspect", "seeker.wasm", "--config", "own.yaml"];
    let shown = stranger.hatchery(&inspect).await?;
    ensure!(!shown.success);
    for part in [
        "  refused   seeker.wasm is not signed, and signatures are required",
        "  exports   ",
        "  requests  models: seek-*",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    assert!(!shown.stdout.contains("  tool  "), "{}", shown.stdout);
    let json = stranger.hatchery(&[&inspect[..], &["--json"]].concat()).await?.json()?;
    assert_eq!((&json["isDescribed"], &json["tools"]), (&json!(false), &json!([])));
    assert_eq!(text_at(&json, "/sha256").len(), 64);
    Ok(())
}

#[tokio::test]
async fn a_folder_cannot_choose_where_the_users_key_goes() -> Result<()> {
    let stranger = Stranger::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    stranger.folder.write("hatchery.yaml", format!("models: {{openai_base_url: '{url}'}}\n"))?;
    stranger.folder.write("spender/root_agent.yaml", "name: spender\nmodel: gpt-5\ninstruction: Spend.\n")?;
    let key = [&stranger.environment()?[..], &[("OPENAI_API_KEY", "sk-the-users")]].concat();
    for args in [&["run", ".", "spender", "-m", "Hello"][..], &["serve", ".", "--port", "0"], &["test", "peeker"]] {
        stranger.folder.write("peeker/conversation.yaml", "app: peeker\nturns: []\n")?;
        let refused = hatchery_with(&stranger.folder.served(), args, &key).await?;
        ensure!(!refused.success, "{args:?}");
        for part in
            [format!("  models.openai_base_url: {url}\n"), "run `hatchery trust ".into(), "`--config FILE`".into()]
        {
            assert!(refused.stderr.contains(&part), "{args:?}: {part}: {}", refused.stderr);
        }
    }
    let asked = listener.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(asked, Err(std::io::ErrorKind::WouldBlock), "nobody has come");
    Ok(())
}

#[tokio::test]
async fn a_configuration_that_is_required_is_there_at_the_start_and_stays_in_force() -> Result<()> {
    let stranger = Stranger::new()?;
    stranger.folder.remove("hatchery.yaml")?;
    let refused = stranger.hatchery(&["serve", ".", "--config-required", "--port", "0"]).await?;
    ensure!(!refused.success);
    assert!(
        refused.stderr.contains("./hatchery.yaml: file not found, but --config-required is set"),
        "{}",
        refused.stderr
    );
    stranger.folder.write("hatchery.yaml", "components: {seeker: {grants: {memory: true}}}")?;
    let host = stranger.serve(&["--config-required"]).await?;
    stranger.folder.remove("hatchery.yaml")?;
    host.until_logged("--config-required is set; the previous settings remain in force").await?;
    assert_eq!(answer(&host, "rememberer", "remember", "still").await?, json!({"result": 0}));
    Ok(())
}

#[tokio::test]
async fn a_denial_is_a_line_in_the_audit_log() -> Result<()> {
    let stranger = Stranger::new()?;
    stranger.folder.write("hatchery.yaml", "")?;
    // What people read in the log does not decide what is audited.
    let environment = [&stranger.environment()?[..], &[("HATCHERY_LOG", "off")]].concat();
    let no_args: [&str; 0] = [];
    let host = Host::serve_with(&stranger.folder, &environment, &no_args).await?;
    let denied = answer(&host, "rememberer", "remember", "s1").await?;
    assert!(text_at(&denied, "/error").contains("may not search the user's memory"), "{denied}");
    let lines = stranger.audited("denied")?;
    let [line] = lines.as_slice() else { anyhow::bail!("{lines:?}") };
    for (key, value) in [
        ("/level", "WARN"),
        ("/component", "seeker"),
        ("/session", "s1"),
        ("/action", "search the user's memory"),
        ("/grant", "memory: true"),
    ] {
        assert_eq!(text_at(line, key), value, "{line}");
    }
    assert!(text_at(line, "/time").ends_with('Z') && text_at(line, "/invocation").starts_with("e-"), "{line}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(stranger.folder.file(".hatchery/audit/audit.log"))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    Ok(())
}

#[tokio::test]
async fn nothing_that_a_component_may_write_becomes_an_agent() -> Result<()> {
    let stranger = Stranger::new()?;
    let folder = &stranger.folder;
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
    let host = stranger.serve(&[]).await?;
    let components = host.components().await?;
    assert!(entry(&components, "linked.wasm").is_none(), "{components}");
    assert!(entry(&components, "planted/data/linked.wasm").is_none(), "{components}");
    let said = host.until_refused("planted/root_agent.yaml").await?;
    let expected = "planted/data/sub.yaml: is in a folder that a component may write, so it is not read as an agent; move it elsewhere";
    assert!(said.contains(expected), "{said}");
    let failed = host.ask("scripted", "s", "Hello").await;
    let failed = failed.map(|events| json!(events).to_string()).unwrap_or_else(|error| format!("{error:#}"));
    let expected = "the script planted/data/answers.yaml is in a folder that a component may write, so it is not read";
    assert!(failed.contains(expected), "{failed}");
    Ok(())
}

#[tokio::test]
async fn what_belongs_to_the_host_is_granted_to_nobody() -> Result<()> {
    let stranger = Stranger::new()?;
    for (host, access) in [(".hatchery", "write"), (".hatchery/revisions", "read"), (".", "read")] {
        let grants = format!(
            "components: {{seeker: {{grants: {{files: [{{host: {host}, guest: /data, access: {access}}}]}}}}}}"
        );
        stranger.folder.write("hatchery.yaml", grants)?;
        let refused = stranger.hatchery(&["serve", ".", "--port", "0"]).await?;
        ensure!(!refused.success);
        for part in [
            "components.seeker.grants.files: `./",
            "the data of the host (`--data-dir`); grant a folder that is outside of it",
        ] {
            assert!(refused.stderr.contains(part), "{host}: {}", refused.stderr);
        }
    }
    Ok(())
}
