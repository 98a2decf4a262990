use super::*;
use crate::Host;

const GOOD: &str = "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet.\n";

async fn host(folder: &Path) -> (Host, AppFiles) {
    fs::create_dir_all(folder.join("hello")).unwrap();
    fs::write(folder.join("hello/root_agent.yaml"), GOOD).unwrap();
    fs::write(folder.join("hello/answers.yaml"), "turns:\n  - reply: Hi\n").unwrap();
    let host = Host::open(folder).await.unwrap();
    let files = host.apps().app_files().unwrap();
    (host, files)
}

fn texts<const N: usize>(texts: [(&str, &str); N]) -> Texts {
    texts.map(|(path, text)| (path.to_owned(), text.to_owned())).into()
}

#[tokio::test]
async fn files_are_listed_with_the_root_file_first() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, files) = host(folder.path()).await;
    let names: Vec<_> = files.list("hello").unwrap().into_iter().map(|file| file.path).collect();
    assert_eq!(names, ["root_agent.yaml", "answers.yaml"]);
    let error = files.list("nobody").unwrap_err().to_string();
    assert_eq!(error, "App not found: nobody; no folder of this name has a root_agent.yaml");
}

#[tokio::test]
async fn a_check_reports_the_place_of_an_error_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, files) = host(folder.path()).await;
    let broken = format!("{GOOD}tools: [{{ name: no/such }}]\n");
    let found = files.check("hello", texts([("root_agent.yaml", &broken)])).await.unwrap().unwrap();
    assert_eq!((found.file.as_str(), found.line), ("root_agent.yaml", Some(4)));
    assert!(found.message.contains("no/such"), "{}", found.message);
    let above = format!("{GOOD}sub_agents: [{{ config_path: ../other.yaml }}]\n");
    let found = files.check("hello", texts([("root_agent.yaml", &above)])).await.unwrap().unwrap();
    assert!(!found.message.contains("hatchery-check"), "{}", found.message);
    assert_eq!(fs::read_to_string(folder.path().join("hello/root_agent.yaml")).unwrap(), GOOD);
    assert_eq!(files.check("hello", texts([("root_agent.yaml", GOOD)])).await.unwrap(), None);
}

#[tokio::test]
async fn an_app_with_a_sub_agent_that_is_an_app_itself_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, files) = host(folder.path()).await;
    fs::create_dir(folder.path().join("hello/helper")).unwrap();
    fs::write(folder.path().join("hello/helper/root_agent.yaml"), GOOD.replace("name: hello", "name: helper")).unwrap();
    let text = format!("{GOOD}sub_agents: [{{ config_path: helper/root_agent.yaml }}]\n");
    assert_eq!(files.check("hello", texts([("root_agent.yaml", &text)])).await.unwrap(), None);
    assert_eq!(files.list("hello").unwrap().len(), 2, "the files of another app are not listed");
}

#[tokio::test]
async fn only_valid_files_are_written_and_only_if_nobody_has_changed_them() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, files) = host(folder.path()).await;
    let file = folder.path().join("hello/root_agent.yaml");
    let read: BTreeMap<_, _> = files.list("hello").unwrap().into_iter().map(|file| (file.path, file.sha256)).collect();
    let error = files.write("hello", texts([("root_agent.yaml", "name: hello\nmodle: x\n")]), &read).await.unwrap_err();
    assert!(error.to_string().starts_with("nothing was written: root_agent.yaml:2: "), "{error}");
    let better = GOOD.replace("Greet", "Greet warmly");
    files.write("hello", texts([("root_agent.yaml", &better), ("notes/more.yaml", "a: 1\n")]), &read).await.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), better);
    assert!(folder.path().join("hello/notes/more.yaml").is_file());
    let error = files.write("hello", texts([("root_agent.yaml", GOOD)]), &read).await.unwrap_err();
    assert_eq!(error.to_string(), "`root_agent.yaml` has changed since it was read; read it again");
    files
        .write("fresh", texts([("root_agent.yaml", &GOOD.replace("name: hello", "name: fresh"))]), &BTreeMap::new())
        .await
        .unwrap();
    assert!(folder.path().join("fresh/root_agent.yaml").is_file());
}

#[tokio::test]
async fn of_concurrent_edits_of_the_same_version_one_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, files) = host(folder.path()).await;
    for round in 0..5 {
        let read: BTreeMap<_, _> =
            files.list("hello").unwrap().into_iter().map(|file| (file.path, file.sha256)).collect();
        let mut writes = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (files, read) = (files.clone(), read.clone());
            let edit = GOOD.replace("Greet", &format!("Greet {round} {number}"));
            writes.spawn(async move { files.write("hello", texts([("root_agent.yaml", &edit)]), &read).await });
        }
        let written = writes.join_all().await;
        assert_eq!(written.iter().filter(|written| written.is_ok()).count(), 1, "{written:?}");
    }
}

#[tokio::test]
async fn files_outside_of_the_folder_of_an_app_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, files) = host(folder.path()).await;
    for path in [
        "../other.yaml",
        "/etc/x.yaml",
        "hatchery.yaml",
        "sub/hatchery.yml",
        ".hidden/x.yaml",
        "a.wasm",
        "a/../b.yaml",
        "a b.yaml",
        &format!("{}.yaml", "n".repeat(240)),
        "",
    ] {
        let error = files.check("hello", texts([(path, "a: 1")])).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{path}` cannot be a file of an app; ")), "{error}");
    }
    for app in ["", "..", "a/b", ".hatchery", "target", "node_modules", "venv"] {
        let error = files.check(app, texts([("root_agent.yaml", GOOD)])).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{app}` cannot be the name of an app; ")), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_neither_read_nor_written() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, files) = host(folder.path()).await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.yaml"), "a: 1\n").unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("hello/link")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.yaml"), folder.path().join("hello/secret.yaml")).unwrap();
    assert_eq!(files.list("hello").unwrap().len(), 2);
    for path in ["link/new.yaml", "secret.yaml"] {
        let refused = files.write("hello", texts([(path, "a: 2\n")]), &BTreeMap::new()).await.unwrap_err();
        assert!(matches!(refused, AppFilesError::InvalidPath(_)), "{refused}");
    }
    assert_eq!(fs::read_to_string(outside.path().join("secret.yaml")).unwrap(), "a: 1\n");
    std::os::unix::fs::symlink(outside.path().join("secret.yaml"), folder.path().join("hello/README.md")).unwrap();
    assert_eq!(files.readme("hello"), None);
}

#[tokio::test]
async fn the_readme_of_an_app_is_read_unless_it_is_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, files) = host(folder.path()).await;
    assert_eq!(files.readme("hello"), None);
    let readme = folder.path().join("hello/README.md");
    fs::write(&readme, "# Hello\n").unwrap();
    assert_eq!(files.readme("hello").as_deref(), Some("# Hello\n"));
    fs::write(&readme, "x".repeat(1 << 20)).unwrap();
    assert!(files.readme("hello").is_some());
    fs::write(&readme, "x".repeat((1 << 20) + 1)).unwrap();
    assert_eq!(files.readme("hello"), None);
    for other in ["nobody", ".."] {
        assert_eq!(files.readme(other), None, "{other}");
    }
}
