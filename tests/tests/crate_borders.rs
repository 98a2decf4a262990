//! The dependencies between crates: which crates of the workspace a crate may use, which libraries the core and the
//! engine must not use, and which C libraries are not linked. The modules of the engine have an order too. The files
//! that `docs/architecture.md` names exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hatchery_tests::paths;
use serde_json::Value;

/// Every crate of the host, with the crates of the workspace that it may use. Dependencies point one way: core ← engine
/// ← recordings, eval, wasm, mcp, a2a, openapi ← assembly ← server ← cli. Models, stores, executors, telemetry and the
/// client of requests to other hosts (egress) know the core, but not the engine. Atomic writes of files know no other
/// crate, and the registry client only them.
const BORDERS: [(&str, &[&str]); 18] = [
    ("hatchery-core", &[]),
    ("hatchery-files", &[]),
    ("hatchery-engine", &["hatchery-core"]),
    ("hatchery-recordings", &["hatchery-core", "hatchery-engine", "hatchery-files"]),
    ("hatchery-eval", &["hatchery-core", "hatchery-engine", "hatchery-files"]),
    ("hatchery-wasm", &["hatchery-core", "hatchery-egress", "hatchery-engine", "hatchery-files"]),
    ("hatchery-egress", &["hatchery-core"]),
    ("hatchery-mcp", &["hatchery-core", "hatchery-egress", "hatchery-engine", "hatchery-files"]),
    ("hatchery-a2a", &["hatchery-core", "hatchery-egress", "hatchery-engine"]),
    ("hatchery-executors", &["hatchery-core", "hatchery-egress"]),
    ("hatchery-openapi", &["hatchery-core", "hatchery-egress", "hatchery-engine"]),
    ("hatchery-models", &["hatchery-core", "hatchery-egress"]),
    ("hatchery-stores", &["hatchery-core", "hatchery-egress", "hatchery-files"]),
    ("hatchery-telemetry", &["hatchery-core"]),
    ("hatchery-registry", &["hatchery-files"]),
    (
        "hatchery",
        &[
            "hatchery-a2a",
            "hatchery-core",
            "hatchery-egress",
            "hatchery-engine",
            "hatchery-eval",
            "hatchery-executors",
            "hatchery-files",
            "hatchery-mcp",
            "hatchery-models",
            "hatchery-openapi",
            "hatchery-recordings",
            "hatchery-registry",
            "hatchery-stores",
            "hatchery-telemetry",
            "hatchery-wasm",
        ],
    ),
    (
        "hatchery-server",
        &[
            "hatchery",
            "hatchery-a2a",
            "hatchery-core",
            "hatchery-engine",
            "hatchery-eval",
            "hatchery-mcp",
            "hatchery-openapi",
            "hatchery-telemetry",
        ],
    ),
    (
        "hatchery-cli",
        &[
            "hatchery",
            "hatchery-core",
            "hatchery-engine",
            "hatchery-eval",
            "hatchery-files",
            "hatchery-recordings",
            "hatchery-registry",
            "hatchery-server",
            "hatchery-telemetry",
            "hatchery-wasm",
        ],
    ),
];

fn cargo(args: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
    ensure!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the crates of the workspace with their dependencies, without dev-dependencies.
fn direct_dependencies() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"])?)?;
    let packages = list(&metadata, "packages")?;
    let name = |json: &Value| json.get("name").and_then(Value::as_str).map(Into::into).context("a name");
    packages
        .iter()
        .map(|package| {
            let used = list(package, "dependencies")?.iter();
            let used = used.filter(|used| used.get("kind").and_then(Value::as_str) != Some("dev"));
            let used = used.map(name).collect::<Result<_>>()?;
            Ok((name(package)?, used))
        })
        .collect()
}

fn list<'a>(json: &'a Value, key: &'static str) -> Result<&'a Vec<Value>> {
    json.get(key).and_then(Value::as_array).context(key)
}

/// Returns all dependencies of a crate, direct and indirect, as `(name, features)`.
fn tree(package: &str, edges: &str) -> Result<Vec<(String, Vec<String>)>> {
    let args = ["tree", "--offline", "--package", package, "--edges", edges, "--prefix", "none", "--format", "{p}|{f}"];
    let text = cargo(&args)?;
    let crates = text.lines().filter_map(|line| {
        let (name, features) = line.trim_end_matches(" (*)").split_once('|')?;
        let name = name.split_whitespace().next()?.to_owned();
        Some((name, features.split(',').map(Into::into).collect()))
    });
    Ok(crates.collect())
}

/// Returns the modules of the engine, each with the paths below the crate that it names.
fn engine_modules() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let sources = paths::repository().join("host/engine/src");
    let (mut modules, mut folders) = (BTreeMap::<_, BTreeSet<_>>::new(), vec![sources.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let module = path.strip_prefix(&sources)?.components().next().context("a file in a module")?;
            let module = module.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned();
            let text = fs::read_to_string(&path)?;
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let named = code.flat_map(|line| line.split("crate::").skip(1));
            let named = named.map(|path| path.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect());
            modules.entry(module).or_default().extend(named);
        }
    }
    modules.remove("lib");
    Ok(modules)
}

#[test]
fn modules_of_the_engine_do_not_import_each_other_in_a_circle() -> Result<()> {
    let mut rest = engine_modules()?;
    assert!(["agents", "history", "llm", "run", "runner"].iter().all(|module| rest.contains_key(*module)), "{rest:?}");
    loop {
        let names: BTreeSet<String> = rest.keys().cloned().collect();
        let imports_others =
            |module: &String, named: &BTreeSet<String>| named.iter().any(|name| name != module && names.contains(name));
        rest.retain(|module, named| imports_others(module, named));
        if rest.len() == names.len() {
            break;
        }
    }
    assert!(rest.is_empty(), "these modules import each other: {rest:?}");
    Ok(())
}

/// Returns the paths that a document in Markdown names as code, without those that have a placeholder.
fn named_paths(markdown: &str) -> BTreeSet<&str> {
    let code = markdown.split('`').skip(1).step_by(2);
    let is_path = |code: &&str| {
        let is_file = [".rs", ".md", ".ts", ".svelte", ".wit"].iter().any(|extension| code.ends_with(*extension));
        let has_placeholder = ["NAME", "LANGUAGE", "…"].iter().any(|placeholder| code.contains(*placeholder));
        (is_file || code.contains('/')) && !has_placeholder && !code.contains(char::is_whitespace)
    };
    code.filter(is_path).collect()
}

#[test]
fn every_file_that_the_architecture_names_exists() -> Result<()> {
    let text = fs::read_to_string(paths::repository().join("docs/architecture.md"))?;
    let named = named_paths(&text);
    ensure!(named.len() > 50 && named.contains("runner/event_log.rs"), "the paths were not found: {named:?}");
    let roots = ["", "host", "host/engine/src"].map(|root| paths::repository().join(root));
    let is_missing = |path: &&&str| !roots.iter().any(|root| root.join(**path).exists());
    let missing: Vec<_> = named.iter().filter(is_missing).collect();
    ensure!(missing.is_empty(), "docs/architecture.md names files that do not exist: {missing:?}");
    Ok(())
}

#[test]
fn dependencies_point_one_way() -> Result<()> {
    let dependencies = direct_dependencies()?;
    for (package, allowed) in BORDERS {
        let used = dependencies.get(package).with_context(|| format!("there is a crate {package}"))?;
        let forbidden = used.iter().filter(|used| used.starts_with("hatchery") && !allowed.contains(&used.as_str()));
        assert_eq!(forbidden.collect::<Vec<_>>(), Vec::<&String>::new(), "{package} must not use these");
    }
    Ok(())
}

#[test]
fn components_use_the_guest_sdk_and_no_crate_of_the_host() -> Result<()> {
    let dependencies = direct_dependencies()?;
    let mut guests = 0;
    for (package, used) in &dependencies {
        if !used.contains("hatchery-guest") && !package.starts_with("hatchery-guest") {
            continue;
        }
        guests += 1;
        for (host, _) in BORDERS {
            assert!(!used.contains(host), "{package} is a guest and uses {host}");
        }
    }
    assert!(guests >= 5, "the SDK, its macros and the samples: {guests}");
    Ok(())
}

#[test]
fn the_core_uses_no_io_no_wasm_no_http_and_no_store() -> Result<()> {
    let tree = tree("hatchery-core", "normal")?;
    assert!(tree.iter().any(|(name, _)| name == "serde"), "the dependency tree is empty: {tree:?}");
    for (name, features) in &tree {
        let foreign = [
            "wasm",
            "wit-",
            "cranelift",
            "axum",
            "hyper",
            "http",
            "reqwest",
            "rustls",
            "rusqlite",
            "libsqlite3",
            "mio",
        ];
        assert!(!foreign.iter().any(|start| name.starts_with(start)), "core uses {name}");
        if name == "tokio" {
            let io = ["rt", "rt-multi-thread", "net", "fs", "process", "signal", "io-util", "io-std", "full"];
            assert!(
                !features.iter().any(|feature| io.contains(&feature.as_str())),
                "core uses tokio with {features:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn the_engine_uses_no_wasm_no_provider_and_no_store() -> Result<()> {
    for (name, _) in tree("hatchery-engine", "normal")? {
        let foreign = ["wasm", "wit-", "cranelift", "axum", "hyper", "reqwest", "rustls", "rusqlite", "libsqlite3"];
        assert!(!foreign.iter().any(|start| name.starts_with(start)), "the engine uses {name}");
    }
    Ok(())
}

#[test]
fn rustls_is_the_only_tls_library() -> Result<()> {
    let tree = tree("hatchery-cli", "normal,build")?;
    let names: BTreeSet<&str> = tree.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains("rustls") && names.contains("aws-lc-rs"), "the dependency tree is empty: {names:?}");
    for foreign in ["openssl", "openssl-sys", "native-tls", "ring", "webpki-roots"] {
        assert!(!names.contains(foreign), "the host uses {foreign}");
    }
    Ok(())
}
