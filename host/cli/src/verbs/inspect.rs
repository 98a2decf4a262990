//! `hatchery inspect`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use hatchery::unknown_apps;
use hatchery_engine::yaml::ROOT_FILE;
use hatchery_wasm::policy::GrantEntries;
use hatchery_wasm::{GrantReport, Inspection, Limits, LoadOptions, inspect_file};
use serde_json::{Value, json};

use crate::host::ConfigArgs;
use crate::terminal::{BOLD, DIM, ERROR, explain, harmless, plain_stdout, stdout};
use crate::verbs::Outcome;
use crate::{compiler, files};

/// What to inspect.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hatchery inspect dice.wasm\n  hatchery inspect my-agents --json\n\n\
    A component is compiled and asked what it offers, without any rights: it finds no file, no variable, no network and no real\n\
    clock, whatever hatchery.yaml says. What signatures keep out is not run at all, and shown as far as it can be read.")]
pub struct Args {
    /// A component, or a folder with components; grants and limits are those of the hatchery.yaml in the same folder
    #[arg(value_name = "FILE_OR_DIR")]
    path: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// Write a line of JSON for each component
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, components) = if args.path.is_dir() {
        (args.path.as_path(), files::find(&args.path, |name| name.ends_with(".wasm"))?)
    } else {
        (args.path.parent().unwrap_or(Path::new("")), vec![args.path.clone()])
    };
    if components.is_empty() {
        bail!("no component in {}; `hatchery build` makes one", args.path.display());
    }
    let loaded = args.config.source(if folder == Path::new("") { Path::new(".") } else { folder }).load()?;
    let config = &loaded.config;
    let options = compiler::load_options(config, None)?;
    let mut outcome = Outcome::Success;
    let mut apps = if args.path.is_dir() { yaml_apps(folder)? } else { Vec::new() };
    for file in components {
        let found = look_at(&options, &file).await;
        apps.extend(found.iter().flat_map(|found| &found.agents).filter(|it| it.is_app).map(|it| it.name.clone()));
        match found {
            Ok(found) => {
                if !found.is_described {
                    outcome = Outcome::Failure;
                }
                let limits = &options.settings.of(&found.name).limits;
                if args.json { print_json(&found, limits, &file)? } else { print(&found, limits, &file)? }
            }
            Err(error) if args.json => {
                outcome = Outcome::Failure;
                print_line(&json!({"file": file, "error": explain(&error)}))?;
            }
            Err(error) => {
                outcome = Outcome::Failure;
                anstream::eprintln!("{ERROR}{}:{ERROR:#} {}", file.display(), explain(&error));
            }
        }
    }
    if let Some(explanation) = loaded.explanation() {
        anstream::eprintln!("{ERROR}warning:{ERROR:#} {}", harmless(&explanation));
    }
    // One component says nothing about which apps there are, nor do those that cannot be read.
    if args.path.is_dir() && outcome == Outcome::Success {
        apps.sort();
        for warning in unknown_apps(config, &apps) {
            anstream::eprintln!("{ERROR}warning:{ERROR:#} {warning}");
        }
    }
    Ok(outcome)
}

/// Names of the apps from YAML.
fn yaml_apps(folder: &Path) -> anyhow::Result<Vec<String>> {
    let roots = files::find(folder, |name| name == ROOT_FILE)?;
    let name = |root: &PathBuf| Some(root.parent()?.file_name()?.to_string_lossy().into_owned());
    Ok(roots.iter().filter_map(name).collect())
}

async fn look_at(options: &LoadOptions, file: &Path) -> anyhow::Result<Inspection> {
    Ok(inspect_file(options, file).await?)
}

fn print_json(found: &Inspection, limits: &Limits, file: &Path) -> anyhow::Result<()> {
    let mut line = serde_json::to_value(found)?;
    if let Value::Object(line) = &mut line {
        line.insert("file".into(), json!(file));
        let granted = json!({
            "memory": limits.memory, "tables": limits.tables, "instances": limits.instances,
            "cpuSeconds": limits.cpu.as_secs_f64(), "wallSeconds": limits.wall.as_secs_f64(),
            "agentWallSeconds": limits.agent_wall.as_secs_f64(), "result": limits.result, "log": limits.log,
        });
        line.insert("limits".into(), granted);
    }
    Ok(print_line(&line)?)
}

fn print_line(line: &Value) -> io::Result<()> {
    writeln!(plain_stdout(), "{line}")
}

fn print(found: &Inspection, limits: &Limits, file: &Path) -> io::Result<()> {
    let mut out = stdout();
    let (name, kib) = (harmless(&found.name), found.size.div_ceil(1024));
    writeln!(
        out,
        "{BOLD}{name}{BOLD:#}  {DIM}{}, {kib} KiB, {}{DIM:#}",
        file.display(),
        found.contract.as_ref().map_or("plain functions".into(), |version| format!("hatchery:agent {version}")),
    )?;
    if let Some(reason) = &found.refused {
        writeln!(out, "  {ERROR}refused{ERROR:#}   {}", harmless(reason))?;
    }
    if !found.is_described {
        writeln!(
            out,
            "  exports   {}  {DIM}it was not run, so this is all that is known of what it offers{DIM:#}",
            harmless(&wanted(&found.exports).join(", "))
        )?;
    }
    for agent in &found.agents {
        let app = if agent.is_app { "app, " } else { "" };
        let description = harmless(&agent.description);
        writeln!(out, "  agent     {}  {DIM}{app}{}{DIM:#}  {description}", harmless(&agent.name), agent.kind)?;
        let model: Vec<_> = agent.model.iter().cloned().collect();
        for (what, names) in [
            ("model", &model),
            ("tools", &agent.tools),
            ("toolsets", &agent.toolsets),
            ("sub agents", &agent.sub_agents),
        ] {
            if !names.is_empty() {
                writeln!(out, "            {DIM}{what}: {}{DIM:#}", harmless(&names.join(", ")))?;
            }
        }
    }
    for tool in &found.tools {
        let slow = if tool.is_long_running { "long running  " } else { "" };
        let asks = if tool.requires_confirmation { "asks first  " } else { "" };
        let arguments = harmless(&arguments(tool.parameters.as_ref())).into_owned();
        let description = harmless(&tool.description);
        writeln!(out, "  tool      {}{DIM}({arguments}){DIM:#}  {slow}{asks}{description}", harmless(&tool.name))?;
    }
    for callback in &found.callbacks {
        writeln!(out, "  callback  {}  {DIM}{}{DIM:#}", harmless(&callback.name), callback.points.join(", "))?;
    }
    for plugin in &found.plugins {
        writeln!(out, "  plugin    {}  {DIM}{}{DIM:#}", harmless(&plugin.name), plugin.hooks.join(", "))?;
    }
    let named = [
        ("executor", &found.code_executors),
        ("summarizer", &found.summarizers),
        ("examples", &found.examples),
        ("model", &found.models),
    ];
    for (kind, name) in named.iter().flat_map(|(kind, names)| names.iter().map(move |name| (kind, name))) {
        writeln!(out, "  {kind:<9} {}", harmless(name))?;
    }
    writeln!(out, "  wants     {}", harmless(&wanted(&found.imports).join(", ")))?;
    let mib = limits.memory.div_ceil(1 << 20);
    writeln!(
        out,
        "  may use   {mib} MiB of memory, {:?} of CPU time, {:?} from start to end",
        limits.cpu, limits.wall
    )?;
    print_grants(&found.grants)
}

/// What is requested, granted, missing and unused, a line for each key.
fn print_grants(grants: &GrantReport) -> io::Result<()> {
    let mut out = stdout();
    let nothing = GrantEntries::new();
    let requested = grants.requested.as_ref().unwrap_or(&nothing);
    for (what, listed) in [
        ("requests", requested),
        ("granted", &grants.granted),
        ("missing", &grants.missing),
        ("unused", &grants.unused),
    ] {
        for (key, entries) in listed {
            write!(out, "  {what:<9} {key}: {}", harmless(&entries.join(", ")))?;
            match grants.why.get(key.split('.').next().unwrap_or(key)).filter(|_| what == "requests") {
                Some(why) => writeln!(out, "  {DIM}{}{DIM:#}", harmless(why))?,
                None => writeln!(out)?,
            }
        }
    }
    Ok(())
}

/// What a component wants, without what every component is given: `hatchery:agent/session@0.1.0` as `session`, of WASI the packages.
fn wanted(imports: &[String]) -> Vec<&str> {
    let names = imports.iter().filter_map(|import| match import.split_once('/') {
        Some(("hatchery:agent", interface)) => {
            interface.split('@').next().filter(|name| !matches!(*name, "types" | "specs"))
        }
        Some((package, _)) => Some(package),
        None => Some(import.as_str()),
    });
    let mut wanted = Vec::new();
    for name in names {
        if !wanted.contains(&name) {
            wanted.push(name);
        }
    }
    wanted
}

/// `sides: integer, label?: string`.
fn arguments(schema: Option<&Value>) -> String {
    let Some(schema) = schema else { return String::new() };
    let required: Vec<_> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let argument = |(name, schema): (&String, &Value)| {
        let optional = if required.contains(&name.as_str()) { "" } else { "?" };
        match schema.get("type") {
            Some(Value::String(kind)) => format!("{name}{optional}: {kind}"),
            _ => format!("{name}{optional}"),
        }
    };
    properties.into_iter().flatten().map(argument).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use hatchery::Config;

    use super::*;

    #[test]
    fn arguments_are_shown_with_their_types() {
        let schema = json!({
            "properties": {"sides": {"type": "integer"}, "label": {"type": "string"}, "any": {}},
            "required": ["sides", "any"],
        });
        assert_eq!(arguments(Some(&schema)), "sides: integer, label?: string, any");
        assert_eq!(arguments(None), "");
    }

    #[test]
    fn what_a_component_wants_is_told_briefly() {
        let imports = [
            "hatchery:agent/types@0.1.0",
            "hatchery:agent/session@0.1.0",
            "wasi:io/poll@0.2.6",
            "wasi:clocks/monotonic-clock@0.2.6",
            "wasi:io/error@0.2.6",
        ];
        assert_eq!(wanted(&imports.map(Into::into)), ["session", "wasi:io", "wasi:clocks"]);
    }

    #[tokio::test]
    async fn what_is_no_component_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.wasm");
        std::fs::write(&file, "not wasm").unwrap();
        assert_eq!(
            run(Args { path: file.clone(), config: ConfigArgs::default(), json: true }).await.unwrap(),
            Outcome::Failure
        );
        let options =
            hatchery::catalog::load_options(&Config::default(), None, hatchery_wasm::Worker::InProcess).unwrap();
        let error = look_at(&options, &file).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("is not a WebAssembly file"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        let error = run(Args { path: empty.path().into(), config: ConfigArgs::default(), json: false })
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("`hatchery build` makes one"), "{error}");
    }
}
