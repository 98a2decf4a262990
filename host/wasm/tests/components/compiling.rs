//! Compilation in child processes, which are shell scripts here that never compile anything.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hatchery_wasm::{
    Catalog, CatalogHandle, CodeCache, CompileLimits, Compiler, FileState, LoadOptions, Worker, precompile,
};
use serde_json::json;

use crate::imports::CapturedLog;
use crate::support::{TestCatalog, call, component, settings_with_grants};

/// Polling interval for conditions that send no notification.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Returns a compiler that never finishes, and writes the ids of its processes to `pids`.
fn stuck(pids: &Path) -> Compiler {
    script(&format!("echo $$ >> '{}'; exec sleep 1000", pids.display()), CompileLimits::default())
}

fn script(script: &str, limits: CompileLimits) -> Compiler {
    let args = ["-c", script, "worker"].map(Into::into).to_vec();
    Compiler::new(Worker::ChildProcess { program: "/bin/sh".into(), args }, limits)
}

/// Returns the bytes of a built component with another hash, which is in no cache.
fn uncached(name: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(component(name)).unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos().to_le_bytes();
    bytes.extend([0, 2 + 16, 1, b'x']);
    bytes.extend(now);
    bytes
}

/// Compiles these components into the cache that all tests share.
async fn compile_ahead(test_catalog: &TestCatalog, names: &[&str]) {
    for name in names {
        precompile(&test_catalog.options, &component(name)).await.unwrap();
    }
}

async fn until(handle: &CatalogHandle, is_met: impl Fn(&Catalog) -> bool) {
    let mut look = tokio::time::interval(LOOK_AGAIN);
    while !is_met(&handle.current()) {
        look.tick().await;
    }
}

fn state(catalog: &Catalog, path: &Path) -> Option<FileState> {
    catalog.file(path).map(|file| file.state.clone())
}

fn is_compiling(catalog: &Catalog, path: &Path) -> bool {
    matches!(state(catalog, path), Some(FileState::Compiling { .. }))
}

/// Waits until `count` processes have been started, and returns their entries.
async fn processes(pids: &Path, count: usize) -> Vec<PathBuf> {
    let mut look = tokio::time::interval(LOOK_AGAIN);
    loop {
        let text = std::fs::read_to_string(pids).unwrap_or_default();
        if text.lines().count() >= count && text.ends_with('\n') {
            return text.lines().map(|pid| Path::new("/proc").join(pid)).collect();
        }
        look.tick().await;
    }
}

#[tokio::test]
async fn a_revoked_grant_is_gone_at_once_while_another_component_is_compiled() {
    let mut test_catalog = TestCatalog::new().with("seeker").with_grants("seeker", json!({"memory": "read"}));
    compile_ahead(&test_catalog, &["seeker", "dice"]).await;
    let pids = tempfile::tempdir().unwrap();
    test_catalog.options.compiler = stuck(&pids.path().join("pids"));
    let path = test_catalog.write("stuck.wasm", uncached("swap"));
    let handle = CatalogHandle::start(test_catalog.path(""), test_catalog.options.clone()).await.unwrap();
    until(&handle, |catalog| is_compiling(catalog, &path) && catalog.components.contains_key("seeker")).await;
    let remember = async |handle: &CatalogHandle| call(&handle.current(), "remember", json!({"name": "x"})).await;
    remember(&handle).await.unwrap();

    let mut settings = test_catalog.options.settings.clone();
    settings.components.insert("seeker".into(), settings_with_grants(json!({})));
    handle.configure(settings).await;
    let denied = remember(&handle).await.unwrap_err().to_string();
    assert!(denied.contains("component `seeker` may not search the user's memory"), "{denied}");

    // A component whose code is cached does not wait either.
    test_catalog.write("dice.wasm", std::fs::read(component("dice")).unwrap());
    handle.watch();
    until(&handle, |catalog| catalog.components.contains_key("dice")).await;
    assert!(is_compiling(&handle.current(), &path), "all of this was while it compiled");
    assert_eq!(handle.current().loading().collect::<Vec<_>>(), ["stuck"]);
}

#[tokio::test]
async fn a_component_with_an_impossible_grant_is_removed_while_another_is_compiled() {
    let mut test_catalog = TestCatalog::new().with("seeker");
    compile_ahead(&test_catalog, &["seeker"]).await;
    let pids = tempfile::tempdir().unwrap();
    test_catalog.options.compiler = stuck(&pids.path().join("pids"));
    let path = test_catalog.write("stuck.wasm", uncached("swap"));
    let handle = CatalogHandle::start(test_catalog.path(""), test_catalog.options.clone()).await.unwrap();
    until(&handle, |catalog| is_compiling(catalog, &path) && catalog.components.contains_key("seeker")).await;
    let mut settings = test_catalog.options.settings.clone();
    let missing = json!({"files": [{"host": "/no/such", "guest": "/data"}]});
    settings.components.insert("seeker".into(), settings_with_grants(missing));
    handle.configure(settings.clone()).await;
    assert!(!handle.current().components.contains_key("seeker"));
    let file = test_catalog.path("seeker.wasm");
    until(&handle, |catalog| matches!(state(catalog, &file), Some(FileState::Rejected { .. }))).await;
    let reason = test_catalog.reason(&handle.current(), "seeker.wasm");
    assert!(reason.contains("component `seeker` cannot be given the folder `/no/such` as /data"), "{reason}");
    settings.components.insert("seeker".into(), settings_with_grants(json!({})));
    handle.configure(settings).await;
    until(&handle, |catalog| catalog.components.contains_key("seeker")).await;
    assert!(is_compiling(&handle.current(), &path), "all of this was while it compiled");
}

#[tokio::test]
async fn a_component_whose_description_depends_on_settings_is_described_again() {
    let test_catalog = TestCatalog::new().with("gallery");
    let handle = test_catalog.open().await;
    let before = handle.current();
    let mut settings = test_catalog.options.settings.clone();
    let config = json!({"key": "value"}).as_object().cloned().unwrap();
    settings
        .components
        .insert("gallery".into(), hatchery_wasm::ComponentSettings { config, ..settings_with_grants(json!({})) });
    handle.configure(settings).await;
    let args = json!({"key": "key"});
    assert_eq!(call(&handle.current(), "configured", args.clone()).await.unwrap(), json!("value"));
    handle.wait_until_loaded().await;
    assert_eq!(handle.current().generation, before.generation + 2, "with the settings, and with what they change");
    assert_eq!(call(&handle.current(), "configured", args.clone()).await.unwrap(), json!("value"));
    assert_eq!(call(&before, "configured", args).await.unwrap(), json!(null), "running calls continue");
}

#[tokio::test]
async fn a_compiler_that_crashes_leaves_the_last_good_revision_serving() {
    let mut test_catalog = TestCatalog::new().with("swap");
    compile_ahead(&test_catalog, &["swap"]).await;
    test_catalog.options.compiler = script("echo no luck >&2; exit 3", CompileLimits::default());
    let handle = test_catalog.open().await;
    let serving = handle.current().components["swap"].sha256().to_owned();
    let path = test_catalog.write("swap.wasm", uncached("swap"));
    let catalog = handle.reload_now().await;
    assert_eq!(
        test_catalog.reason(&catalog, "swap.wasm"),
        "component `swap` cannot be loaded: the compiler crashed (exit status: 3: no luck); change the file to try again"
    );
    assert!(matches!(state(&catalog, &path), Some(FileState::Rejected { previous_serves: true, .. })));
    assert_eq!(catalog.components["swap"].sha256(), serving);
}

#[tokio::test]
async fn code_of_another_engine_is_not_loaded() {
    let mut test_catalog = TestCatalog::new();
    test_catalog.options.cache = CodeCache::new(Some(test_catalog.path(".code")));
    test_catalog.options.compiler =
        script(r"printf '\001\004\000\000\000\000\000\000\000code'", CompileLimits::default());
    test_catalog.write("swap.wasm", uncached("swap"));
    let catalog = test_catalog.open().await.current();
    assert!(test_catalog.reason(&catalog, "swap.wasm").starts_with("component `swap` cannot be loaded: "));
    let cached: Vec<_> =
        std::fs::read_dir(test_catalog.path(".code")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(cached, ["key"], "nothing of it is cached");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_compilation_ends_when_its_file_changes_or_is_removed_or_the_catalog_is_dropped() {
    let mut test_catalog = TestCatalog::new();
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    test_catalog.options.compiler = stuck(&pids);
    let path = test_catalog.write("stuck.wasm", uncached("swap"));
    let handle = CatalogHandle::start(test_catalog.path(""), test_catalog.options.clone()).await.unwrap();
    handle.watch();
    let mut look = tokio::time::interval(LOOK_AGAIN);
    let first = processes(&pids, 1).await.remove(0);
    assert!(first.exists());
    test_catalog.write("stuck.wasm", [uncached("swap"), vec![0, 2, 1, b'y']].concat());
    let second = processes(&pids, 2).await.remove(1);
    while first.exists() {
        look.tick().await;
    }
    assert!(second.exists());
    std::fs::remove_file(&path).unwrap();
    while second.exists() {
        look.tick().await;
    }
    test_catalog.write("stuck.wasm", uncached("swap"));
    let third = processes(&pids, 3).await.remove(2);
    drop(handle);
    while third.exists() {
        look.tick().await;
    }
}

#[tokio::test]
async fn the_number_of_concurrent_compilations_is_limited() {
    let mut test_catalog = TestCatalog::new();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let limits = CompileLimits { processes: NonZeroU32::MIN, ..CompileLimits::default() };
    let noting = format!("echo begin >> '{0}'; head -c 100000 > /dev/null; echo end >> '{0}'; exit 1", log.display());
    test_catalog.options.compiler = script(&noting, limits);
    for name in ["a", "b", "c", "d"] {
        test_catalog.write(&format!("{name}.wasm"), uncached("swap"));
    }
    let catalog = test_catalog.open().await.current();
    assert!(catalog.files.iter().all(|file| file.state.reason().is_some()), "{:?}", catalog.files);
    assert_eq!(std::fs::read_to_string(log).unwrap(), "begin\nend\n".repeat(4));
}

#[tokio::test]
async fn a_function_that_is_too_large_is_not_compiled() {
    let mut test_catalog = TestCatalog::new();
    let limits = CompileLimits { max_function_size: 1000, ..CompileLimits::default() };
    test_catalog.options.compiler = Compiler::new(Worker::InProcess, limits);
    test_catalog.write("swap.wasm", uncached("swap"));
    let reason = test_catalog.reason(&test_catalog.open().await.current(), "swap.wasm");
    assert!(reason.starts_with("component `swap` cannot be loaded: one of its functions has "), "{reason}");
    assert!(
        reason.ends_with(
            " bytes of code, and 1000 are allowed; split it, or raise `compile.max_function_size` in hatchery.yaml"
        ),
        "{reason}"
    );
}

/// Which of two apps with one name serves must not depend on which is compiled first.
#[tokio::test]
async fn neither_of_two_apps_with_one_name_serves_however_long_one_takes_to_load() {
    let test_catalog = TestCatalog::new().with("swap");
    compile_ahead(&test_catalog, &["swap"]).await;
    test_catalog.write("swap/root_agent.yaml", "name: swap\nmodel: m\ninstruction: Talk.\n");
    let options = LoadOptions { progress_delay: Duration::ZERO, ..test_catalog.options.clone() };
    let handle = CatalogHandle::start(test_catalog.path(""), options).await.unwrap();
    handle.wait_until_loaded().await;
    let catalog = handle.current();
    assert!(catalog.apps.is_empty(), "{:?}", catalog.files);
    for file in ["swap.wasm", "swap/root_agent.yaml"] {
        assert!(test_catalog.reason(&catalog, file).ends_with("are apps named `swap`; rename or remove one"));
    }
}

#[tokio::test]
async fn an_app_whose_components_are_still_loading_is_pending_and_not_rejected() {
    let mut test_catalog = TestCatalog::new();
    let pids = tempfile::tempdir().unwrap();
    test_catalog.options.compiler = stuck(&pids.path().join("pids"));
    test_catalog.write("swap.wasm", uncached("swap"));
    let agent =
        test_catalog.write("app/root_agent.yaml", "agent_class: LoopAgent\nname: app\nsub_agents: [{code: swap}]\n");
    let handle = CatalogHandle::start(test_catalog.path(""), test_catalog.options.clone()).await.unwrap();
    until(&handle, |catalog| is_compiling(catalog, &test_catalog.path("swap.wasm"))).await;
    assert_eq!(state(&handle.current(), &agent), Some(FileState::Pending));
    assert_eq!(handle.current().loading().collect::<Vec<_>>(), ["app", "swap"]);
    std::fs::remove_file(test_catalog.path("swap.wasm")).unwrap();
    handle.reload_now().await;
    until(&handle, |catalog| catalog.loading().next().is_none()).await;
    assert!(test_catalog.reason(&handle.current(), "app/root_agent.yaml").contains("agent `swap` not found"));
}

#[tokio::test]
async fn a_component_and_an_app_of_the_same_name_are_listed_once_while_they_are_loading() {
    let mut test_catalog = TestCatalog::new();
    let pids = tempfile::tempdir().unwrap();
    test_catalog.options.compiler = stuck(&pids.path().join("pids"));
    let component = test_catalog.write("app.wasm", uncached("swap"));
    let agent =
        test_catalog.write("app/root_agent.yaml", "agent_class: LoopAgent\nname: app\nsub_agents: [{code: swap}]\n");
    let handle = CatalogHandle::start(test_catalog.path(""), test_catalog.options.clone()).await.unwrap();
    until(&handle, |catalog| is_compiling(catalog, &component)).await;
    assert_eq!(state(&handle.current(), &agent), Some(FileState::Pending));
    assert_eq!(handle.current().loading().collect::<Vec<_>>(), ["app"]);
}

#[tokio::test]
async fn loaded_revisions_are_in_the_audit_log() {
    let test_catalog = TestCatalog::new().with("swap");
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let handle = test_catalog.open().await;
    let old = handle.current().components["swap"].sha256().to_owned();
    test_catalog.write("swap.wasm", uncached("swap"));
    let new = handle.reload_now().await.components["swap"].sha256().to_owned();
    std::fs::remove_file(test_catalog.path("swap.wasm")).unwrap();
    handle.reload_now().await;
    drop(guard);
    assert_eq!(log.lines("hatchery::audit"), ["swap"; 3]);
    assert_eq!(
        log.fields("hatchery::audit"),
        [
            format!(r#"component="swap" detail="{old} is loaded""#),
            format!(r#"component="swap" detail="{old} is replaced by {new}""#),
            format!(r#"component="swap" detail="{new} is removed""#),
        ]
    );
}
