//! Hot reload: files are added, changed and removed while the catalog serves.

use std::sync::Arc;
use std::time::Duration;

use hatchery_wasm::{Catalog, CatalogHandle, FileState};

use crate::support::{Listener, TestCatalog, component, run_custom};

/// Returns the `swap` component with another text of the same length.
fn swap(text: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(component("swap")).unwrap();
    let at = bytes.windows(5).position(|window| window == b"unset").expect("the text");
    bytes[at..at + 5].copy_from_slice(text.as_bytes());
    bytes
}

async fn first_text(catalog: &Arc<Catalog>) -> String {
    let listener = Listener::new(10);
    run_custom(catalog, "swap", &listener).await.unwrap();
    listener.texts().remove(0)
}

/// Waits until the watched catalog meets a condition.
async fn until(handle: &CatalogHandle, is_met: impl Fn(&Catalog) -> bool) {
    let mut changed = handle.subscribe();
    let reached = async {
        while !is_met(&handle.current()) {
            changed.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reached).await.expect("the catalog never got there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_component_in_a_new_folder_serves() {
    let test_catalog = TestCatalog::new();
    let handle = test_catalog.open().await;
    handle.watch();
    assert!(handle.current().components.is_empty());
    test_catalog.write("deep/er/swap.wasm", std::fs::read(component("swap")).unwrap());
    until(&handle, |catalog| catalog.app("swap").is_some()).await;
    assert_eq!(first_text(&handle.current()).await, "unset 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_component_takes_over_and_a_running_call_keeps_the_old_code() {
    let test_catalog = TestCatalog::new();
    test_catalog.write("swap.wasm", swap("older"));
    let handle = test_catalog.open().await;
    handle.watch();
    let old = handle.current();
    let listener = Listener::new(1);
    let running = tokio::spawn({
        let (old, listener) = (old.clone(), listener.clone());
        async move { run_custom(&old, "swap", &listener).await }
    });
    listener.arrived.notified().await;
    test_catalog.write("swap.wasm", swap("newer"));
    until(&handle, |catalog| catalog.generation > old.generation).await;
    assert_eq!(first_text(&handle.current()).await, "newer 1");
    listener.permits.add_permits(5);
    running.await.unwrap().unwrap();
    assert_eq!(listener.texts(), ["older 1", "older 2", "older 3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_component_is_gone() {
    let test_catalog = TestCatalog::new().with("swap").with("misbehaver");
    let handle = test_catalog.open().await;
    handle.watch();
    std::fs::remove_file(test_catalog.path("swap.wasm")).unwrap();
    until(&handle, |catalog| catalog.app("swap").is_none()).await;
    assert!(handle.current().components.contains_key("misbehaver"));
    assert_eq!(handle.current().files.len(), 1);
}

#[tokio::test]
async fn a_half_written_file_keeps_the_last_good_one_serving() {
    let test_catalog = TestCatalog::new();
    test_catalog.write("swap.wasm", swap("older"));
    let handle = test_catalog.open().await;
    let newer = swap("newer");
    for cut in [0, 4, 100, newer.len() / 2, newer.len() - 1] {
        test_catalog.write("swap.wasm", &newer[..cut]);
        let catalog = handle.reload_now().await;
        let reason = test_catalog.reason(&catalog, "swap.wasm");
        let is_truncated = reason.contains("ends in the middle: the file is truncated or still being written");
        assert!(is_truncated || cut == 0 && reason.contains("is not a WebAssembly file"), "{cut}: {reason}");
        let state = &catalog.file(&test_catalog.path("swap.wasm")).unwrap().state;
        assert!(matches!(state, FileState::Rejected { previous_serves: true, .. }), "{state:?}");
        assert_eq!(first_text(&catalog).await, "older 1");
    }
    test_catalog.write("swap.wasm", &newer);
    let catalog = handle.reload_now().await;
    assert_eq!(catalog.files[0].state, FileState::Loaded);
    assert_eq!(first_text(&catalog).await, "newer 1");
}

#[tokio::test]
async fn a_broken_file_is_listed_with_its_reason_and_affects_no_other() {
    let test_catalog = TestCatalog::new().with("swap");
    test_catalog.write("broken.wasm", b"\0asm\x0d\0\x01\0garbage");
    let catalog = test_catalog.open().await.current();
    assert!(test_catalog.reason(&catalog, "broken.wasm").starts_with("component `broken` "), "{:?}", catalog.files);
    assert_eq!(first_text(&catalog).await, "unset 1");
}

#[tokio::test]
async fn an_unchanged_file_makes_no_new_generation() {
    let test_catalog = TestCatalog::new().with("swap");
    let handle = test_catalog.open().await;
    let before = handle.current();
    let bytes = std::fs::read(test_catalog.path("swap.wasm")).unwrap();
    assert_eq!(handle.reload_now().await.generation, before.generation);
    test_catalog.write("swap.wasm", bytes);
    assert_eq!(handle.reload_now().await.generation, before.generation);
}

#[tokio::test]
async fn the_second_file_of_a_name_does_not_replace_the_first() {
    let test_catalog = TestCatalog::new();
    test_catalog.write("a/swap.wasm", swap("older"));
    let handle = test_catalog.open().await;
    test_catalog.write("b/swap.wasm", swap("newer"));
    let catalog = handle.reload_now().await;
    assert_eq!(first_text(&catalog).await, "older 1");
    let (first, second) = (test_catalog.path("a/swap.wasm"), test_catalog.path("b/swap.wasm"));
    assert_eq!(
        test_catalog.reason(&catalog, "b/swap.wasm"),
        format!("`{}` and `{}` are components named `swap`; rename or remove one", first.display(), second.display())
    );
    assert_eq!(catalog.file(&first).unwrap().state, FileState::Loaded);
    std::fs::remove_file(first).unwrap();
    let catalog = handle.reload_now().await;
    assert_eq!(catalog.file(&second).unwrap().state, FileState::Loaded);
    assert_eq!(first_text(&catalog).await, "newer 1");
}

#[tokio::test]
async fn neither_of_two_new_files_with_one_name_serves() {
    let test_catalog = TestCatalog::new();
    test_catalog.write("a/swap.wasm", swap("older"));
    test_catalog.write("b/swap.wasm", swap("newer"));
    let catalog = test_catalog.open().await.current();
    assert!(catalog.apps.is_empty());
    for file in ["a/swap.wasm", "b/swap.wasm"] {
        assert!(test_catalog.reason(&catalog, file).ends_with("are components named `swap`; rename or remove one"));
    }
}

#[tokio::test]
async fn a_yaml_app_with_the_name_of_a_serving_app_is_a_conflict() {
    let test_catalog = TestCatalog::new().with("swap");
    let handle = test_catalog.open().await;
    let path = test_catalog.write("swap/root_agent.yaml", "name: swap\nmodel: some-model\ninstruction: Talk.\n");
    let catalog = handle.reload_now().await;
    assert_eq!(first_text(&catalog).await, "unset 1");
    assert_eq!(
        test_catalog.reason(&catalog, "swap/root_agent.yaml"),
        format!(
            "`{}` and `{}` are apps named `swap`; rename or remove one",
            path.display(),
            test_catalog.path("swap.wasm").display()
        )
    );
}

#[tokio::test]
async fn yaml_apps_are_added_changed_and_removed() {
    let test_catalog = TestCatalog::new();
    let handle = test_catalog.open().await;
    test_catalog.write("talker/root_agent.yaml", "name: talker\nmodel: some-model\ninstruction: One.\n");
    let catalog = handle.reload_now().await;
    assert_eq!(catalog.app("talker").unwrap().root().description, "");
    test_catalog
        .write("talker/root_agent.yaml", "name: talker\nmodel: some-model\ninstruction: One.\ndescription: Talks.\n");
    let catalog = handle.reload_now().await;
    assert_eq!(catalog.app("talker").unwrap().root().description, "Talks.");
    test_catalog.write("talker/root_agent.yaml", "name: talker\nmodle: typo\n");
    let catalog = handle.reload_now().await;
    assert_eq!(catalog.app("talker").unwrap().root().description, "Talks.", "the last good one serves");
    assert!(test_catalog.reason(&catalog, "talker/root_agent.yaml").contains("modle"));
    std::fs::remove_dir_all(test_catalog.path("talker")).unwrap();
    assert!(handle.reload_now().await.apps.is_empty());
}

#[tokio::test]
async fn a_yaml_app_follows_the_tools_that_it_uses() {
    let test_catalog = TestCatalog::new();
    test_catalog.write(
        "app/root_agent.yaml",
        "name: echoer\nmodel: some-model\ninstruction: Echo.\ntools:\n  - name: misbehaver/echo\n",
    );
    let handle = test_catalog.open().await;
    let reason = test_catalog.reason(&handle.current(), "app/root_agent.yaml");
    assert!(reason.contains("`misbehaver/echo` not found"), "{reason}");
    std::fs::copy(component("misbehaver"), test_catalog.path("misbehaver.wasm")).unwrap();
    assert!(handle.reload_now().await.app("app").is_some());
}

#[tokio::test]
async fn an_app_stops_serving_without_the_components_that_it_uses() {
    let test_catalog = TestCatalog::new().with("misbehaver").with("swap");
    let app = "name: echoer\nmodel: some-model\ninstruction: Echo.\ntools:\n  - name: misbehaver/echo\n";
    test_catalog.write("app/root_agent.yaml", app);
    test_catalog.write("edited/root_agent.yaml", app);
    let handle = test_catalog.open().await;
    let serving = |catalog: &Catalog| ["app", "edited"].map(|name| catalog.app(name).is_some());
    assert_eq!(serving(&handle.current()), [true, true]);
    test_catalog.write("edited/root_agent.yaml", "name: echoer\nmodle: typo\n");
    test_catalog.write("misbehaver.wasm", "no component");
    std::fs::remove_file(test_catalog.path("swap.wasm")).unwrap();
    let catalog = handle.reload_now().await;
    assert_eq!(serving(&catalog), [true, true], "the last good revision of the tool serves");
    std::fs::remove_file(test_catalog.path("misbehaver.wasm")).unwrap();
    let catalog = handle.reload_now().await;
    assert_eq!(serving(&catalog), [false, false]);
}

#[tokio::test]
async fn hidden_folders_build_folders_and_unfinished_downloads_are_ignored() {
    let test_catalog = TestCatalog::new();
    for file in [".git/swap.wasm", "target/swap.wasm", "node_modules/x/swap.wasm", "swap.wasm.tmp", ".swap.wasm"] {
        test_catalog.write(file, swap("older"));
    }
    assert!(test_catalog.open().await.current().files.is_empty());
}

#[tokio::test]
async fn a_missing_directory_is_an_error() {
    let test_catalog = TestCatalog::new();
    let missing = test_catalog.path("missing");
    let error = match CatalogHandle::open(&missing, test_catalog.options.clone()).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("opened"),
    };
    assert!(error.starts_with(&format!("{}: cannot be read: ", missing.display())), "{error}");
}

/// Starts a run of the current component, which emits its first event and continues when the listener lets it.
async fn start_run(
    handle: &CatalogHandle,
) -> (Arc<Listener>, tokio::task::JoinHandle<Result<(), hatchery_core::RunError>>) {
    let listener = Listener::new(0);
    let (catalog, listening) = (handle.current(), listener.clone());
    let running = tokio::spawn(async move { run_custom(&catalog, "swap", &listening).await });
    listener.arrived.notified().await;
    (listener, running)
}

#[tokio::test]
async fn a_replaced_revision_is_shown_until_its_runs_have_ended() {
    let test_catalog = TestCatalog::new();
    test_catalog.write("swap.wasm", swap("older"));
    let handle = test_catalog.open().await;
    let sha256 = handle.current().components["swap"].sha256().to_owned();
    let (listener, running) = start_run(&handle).await;
    assert!(handle.draining().is_empty());
    test_catalog.write("swap.wasm", swap("newer"));
    handle.reload_now().await;
    let draining = handle.draining();
    assert_eq!(draining.len(), 1);
    assert_eq!((draining[0].name.as_str(), &draining[0].sha256, draining[0].calls), ("swap", &sha256, 1));
    assert!(!draining[0].is_cut_off);
    listener.permits.add_permits(5);
    running.await.unwrap().unwrap();
    // The app is closed first.
    while !handle.draining().is_empty() {
        handle.reload_now().await;
    }
}

#[tokio::test]
async fn a_removed_component_drains_as_well() {
    let test_catalog = TestCatalog::new().with("swap");
    let handle = test_catalog.open().await;
    let (listener, running) = start_run(&handle).await;
    std::fs::remove_file(test_catalog.path("swap.wasm")).unwrap();
    assert!(handle.reload_now().await.components.is_empty());
    assert_eq!(handle.draining()[0].calls, 1);
    listener.permits.add_permits(5);
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_run_that_does_not_end_in_time_loses_its_revision() {
    let mut test_catalog = TestCatalog::new();
    test_catalog.options.drain_timeout = Duration::ZERO;
    test_catalog.write("swap.wasm", swap("older"));
    let handle = test_catalog.open().await;
    let old = handle.current();
    let (listener, running) = start_run(&handle).await;
    test_catalog.write("swap.wasm", swap("newer"));
    handle.reload_now().await;
    listener.permits.add_permits(5);
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "COMPONENT_REPLACED");
    assert_eq!(error.to_string(), "component `swap`: its file was replaced during the run; start the run again");
    assert!(handle.draining()[0].is_cut_off, "{:?}", handle.draining());
    let later = run_custom(&old, "swap", &Listener::new(10)).await.unwrap_err();
    assert_eq!(later.code(), "COMPONENT_REPLACED", "no call starts on it any more");
    assert_eq!(first_text(&handle.current()).await, "newer 1");
}

#[tokio::test]
async fn loaded_revisions_are_stored_for_rollback() {
    let mut test_catalog = TestCatalog::new();
    let revisions = hatchery_wasm::Revisions::new(test_catalog.path(".hatchery/revisions"), 3);
    test_catalog.options.revisions = Some(revisions.clone());
    test_catalog.write("swap.wasm", swap("older"));
    let handle = test_catalog.open().await;
    test_catalog.write("swap.wasm", "no component");
    handle.reload_now().await;
    test_catalog.write("swap.wasm", swap("newer"));
    let newer = handle.reload_now().await.components["swap"].sha256().to_owned();
    let stored_revisions = revisions.list("swap").unwrap();
    assert_eq!(stored_revisions.len(), 2, "what never served is not kept");
    assert_eq!(stored_revisions[0].sha256, newer);
    assert_eq!(revisions.read("swap", &stored_revisions[1].sha256).unwrap(), swap("older"));
}
