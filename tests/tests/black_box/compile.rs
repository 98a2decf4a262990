//! `hatchery compile`: fills the code cache before a start.

use std::fs;

use anyhow::{Result, ensure};
use hatchery_tests::Folder;
use hatchery_tests::paths::component;
use hatchery_tests::slow_components::{branches, nested_loops};
use serde_json::Value;

use crate::cli::{Output, hatchery, hatchery_with};

const DATA: [&str; 2] = ["--data-dir", "../data"];

/// Creates a folder with two components and a separate data folder.
fn folder() -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.write("swap.wasm", component("swap")?)?;
    folder.write("tools/misbehaver.wasm", component("misbehaver")?)?;
    Ok(folder)
}

async fn compile(folder: &Folder, more: &[&str]) -> Result<Output> {
    hatchery(&folder.served(), &[&["compile"][..], &DATA, more].concat()).await
}

/// Returns for each component whether its code was in the cache.
fn from_cache(output: &Output) -> Result<Vec<(String, bool)>> {
    ensure!(output.success, "{}{}", output.stdout, output.stderr);
    let mut found: Vec<_> = output
        .lines()?
        .iter()
        .map(|line| (line["name"].as_str().unwrap_or_default().to_owned(), line["fromCache"] == Value::Bool(true)))
        .collect();
    found.sort();
    Ok(found)
}

fn both_components(is_from_cache: bool) -> Vec<(String, bool)> {
    ["misbehaver", "swap"].map(|name| (name.to_owned(), is_from_cache)).into()
}

#[tokio::test]
async fn components_are_compiled_once_and_reported_with_time_and_size() -> Result<()> {
    let folder = folder()?;
    let first = compile(&folder, &["--json"]).await?;
    assert_eq!(from_cache(&first)?, both_components(false));
    let line = &first.lines()?[0];
    assert_eq!(line["size"], fs::metadata(folder.served().join(line["file"].as_str().unwrap_or_default()))?.len());
    assert!(line["milliseconds"].is_u64(), "{line}");
    assert_eq!(from_cache(&compile(&folder, &["--json"]).await?)?, both_components(true));

    let report = compile(&folder, &[]).await?;
    let kib = component("swap")?.len().div_ceil(1024);
    let line = report.stdout.lines().find(|line| line.starts_with("swap  cached  ")).unwrap_or_default();
    assert!(line.ends_with(&format!(" ms, {kib} KiB")), "{}", report.stdout);
    Ok(())
}

#[tokio::test]
async fn hidden_files_are_not_compiled() -> Result<()> {
    let folder = folder()?;
    // Such as a file that is being downloaded.
    folder.write(".swap.wasm", "nonsense")?;
    assert_eq!(from_cache(&compile(&folder, &["--json"]).await?)?, both_components(false));
    Ok(())
}

#[tokio::test]
async fn processes_can_fill_one_cache_concurrently() -> Result<()> {
    let folder = folder()?;
    let (one, two) = tokio::join!(compile(&folder, &["--json"]), compile(&folder, &["--json"]));
    for output in [one?, two?] {
        assert_eq!(from_cache(&output)?.len(), 2);
        assert_eq!(output.stderr, "");
    }
    assert_eq!(from_cache(&compile(&folder, &["--json"]).await?)?, both_components(true));
    let names: Vec<_> = fs::read_dir(folder.data().join("code"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    assert!(names.len() == 3 && !names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
    Ok(())
}

#[tokio::test]
async fn a_host_loads_precompiled_components_from_the_cache() -> Result<()> {
    let folder = folder()?;
    let caches = folder.data().display().to_string();
    let variables = [("HATCHERY_LOG", "hatchery_wasm=info"), ("XDG_CACHE_HOME", caches.as_str())];
    let output = hatchery_with(&folder.served(), &["compile", "--json"], &variables).await?;
    assert_eq!(from_cache(&output)?, both_components(false));
    let output = hatchery_with(&folder.served(), &["run", ".", "swap", "--message", "hello"], &variables).await?;
    ensure!(output.success, "{}", output.stderr);
    let loaded: Vec<_> = output.stderr.lines().filter(|line| line.contains("is_from_cache")).collect();
    assert!(loaded.len() == 2 && loaded.iter().all(|line| line.contains("is_from_cache=true")), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn a_component_that_fails_to_compile_is_named_and_the_others_are_compiled() -> Result<()> {
    let folder = folder()?;
    folder.write("broken.wasm", "not wasm")?;
    let output = compile(&folder, &[]).await?;
    assert!(!output.success);
    assert!(output.stderr.contains("broken.wasm: component `broken` is not a WebAssembly file"), "{}", output.stderr);
    assert!(output.stdout.contains("swap  compiled") && output.stdout.contains("misbehaver  "), "{}", output.stdout);
    let output = compile(&folder, &["--json"]).await?;
    let errors: Vec<_> = output.lines()?.into_iter().filter(|line| line.get("error").is_some()).collect();
    assert!(!output.success && errors.len() == 1 && errors[0]["file"] == "./broken.wasm", "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn a_missing_cache_folder_is_an_error_that_names_the_flag() -> Result<()> {
    let folder = folder()?;
    fs::write(folder.data().join("code"), "a file")?;
    let output = compile(&folder, &[]).await?;
    assert!(!output.success);
    for part in ["cannot write compiled code to ../data/code: ", "choose another folder with --data-dir"] {
        assert!(output.stderr.contains(part), "{part:?} is not in {:?}", output.stderr);
    }
    let homeless = [("XDG_CACHE_HOME", ""), ("HOME", "")];
    let output = hatchery_with(&folder.served(), &["compile"], &homeless).await?;
    let none = "no folder for compiled code; set HOME or XDG_CACHE_HOME, or pass --data-dir";
    assert!(!output.success && output.stderr.contains(none), "{}", output.stderr);
    let empty = Folder::empty()?;
    let output = compile(&empty, &[]).await?;
    assert!(!output.success && output.stderr.contains("no component found in .; create one with `hatchery build`"));
    Ok(())
}

/// Returns the error of compiling a folder with one component.
async fn compile_error(bytes: Vec<u8>, limits: &str) -> Result<String> {
    let folder = folder()?;
    folder.write("heavy.wasm", bytes)?;
    folder.write("hatchery.yaml", format!("compile: {{{limits}}}\n"))?;
    // A folder may not raise these limits by itself.
    let output = compile(&folder, &["--config", "hatchery.yaml"]).await?;
    assert!(!output.success, "{}{}", output.stdout, output.stderr);
    assert!(
        output.stdout.contains("swap  compiled") && output.stdout.contains("misbehaver  "),
        "{}{}",
        output.stdout,
        output.stderr
    );
    Ok(output.stderr)
}

#[tokio::test]
async fn compilation_is_stopped_at_its_time_limit() -> Result<()> {
    let error = compile_error(nested_loops(6000)?, "time: 2s").await?;
    let expected = "heavy.wasm: component `heavy` cannot be loaded: compiling it takes more than 2s of CPU time; split its largest \
                    functions, or raise `compile.time` in hatchery.yaml";
    assert!(error.contains(expected), "{error}");
    Ok(())
}

#[tokio::test]
async fn compilation_is_stopped_at_its_memory_limit() -> Result<()> {
    let error = compile_error(branches(100_000)?, "memory: 512MiB, max_function_size: 7MiB").await?;
    let expected = "heavy.wasm: component `heavy` cannot be loaded: compiling it takes more than 512 MiB of memory; split its largest \
                    functions, or raise `compile.memory` in hatchery.yaml";
    assert!(error.contains(expected), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_component_with_too_many_or_too_large_functions_is_not_compiled() -> Result<()> {
    let folder = folder()?;
    for (limits, expected) in [
        (
            "max_functions: 1",
            "component `swap` cannot be loaded: it has more than 1 function; split the component, or raise \
             `compile.max_functions` in hatchery.yaml",
        ),
        (
            "max_function_size: 1000",
            " bytes of code, and 1000 are allowed; split it, or raise `compile.max_function_size` in hatchery.yaml",
        ),
        (
            "max_file_size: 1KiB",
            " bytes, and a component may have 1024; build it with `hatchery build`, which strips it, or raise \
             `compile.max_file_size` in hatchery.yaml",
        ),
    ] {
        folder.write("hatchery.yaml", format!("compile: {{{limits}}}\n"))?;
        let output = compile(&folder, &[]).await?;
        assert!(!output.success && output.stderr.contains(expected), "{}", output.stderr);
    }
    Ok(())
}
