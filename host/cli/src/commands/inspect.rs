//! `hatchery inspect`: shows what components export, import, request and are granted.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use hatchery::unknown_apps;
use hatchery_engine::yaml::ROOT_FILE;
use hatchery_wasm::policy::GrantEntries;
use hatchery_wasm::{GrantReport, Inspection, Limits, inspect_file};
use serde_json::{Value, json};

use crate::host::{ConfigArgs, StorageArgs, explain_trust};
use crate::inspection::uncallable_tools;
use crate::outcome::Outcome;
use crate::projects::explain_no_component;
use crate::terminal::{BOLD, DIM, ERROR, WARNING, escape_control, format_error, plain_stdout, printable_path, stdout};
use crate::{compiler, files};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery inspect dice.wasm\n  hatchery inspect my-agents --json\n\n\
    Compiles each component and lets it describe itself, without any grants: it has no files, environment variables or \
    network, and a fake clock. Components that are refused, for example by the signature policy, are not run; only their \
    exports and imports are shown.")]
pub struct Args {
    /// A component, or a folder with components; grants and limits come from hatchery.yaml in the same folder
    #[arg(value_name = "FILE_OR_DIR", default_value = ".")]
    path: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print a line of JSON for each component
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, components) = if args.path.is_dir() {
        (args.path.as_path(), files::find_components(&args.path)?)
    } else if !args.path.exists() {
        bail!("{} is neither a file nor a folder", args.path.display());
    } else {
        (args.path.parent().unwrap_or(Path::new("")), vec![args.path.clone()])
    };
    if components.is_empty() {
        bail!(explain_no_component(&args.path));
    }
    let loaded = args.config.source(if folder == Path::new("") { Path::new(".") } else { folder }).load()?;
    let config = &loaded.config;
    let options = compiler::load_options(config, StorageArgs::default().code_cache(|name| std::env::var_os(name)))?;
    let mut outcome = Outcome::Success;
    let mut apps = if args.path.is_dir() { yaml_app_names(folder)? } else { Vec::new() };
    for file in components {
        match inspect_file(&options, &file).await {
            Ok(inspection) => {
                if !inspection.is_described {
                    outcome = Outcome::Failure;
                }
                let agents = inspection.agents.iter().filter(|agent| agent.is_app);
                apps.extend(agents.map(|agent| agent.name.clone()));
                let limits = &options.settings.for_component(&inspection.name).limits;
                report(&inspection, limits, &file, args.json)?;
            }
            Err(error) => {
                outcome = Outcome::Failure;
                report_failure(&error.into(), &file, args.json)?;
            }
        }
    }
    if let Some(explanation) = explain_trust(&loaded) {
        anstream::eprintln!("{WARNING}warning:{WARNING:#} {}", escape_control(&explanation));
    }
    // The list of apps is complete only if a whole folder was read without errors.
    if args.path.is_dir() && outcome == Outcome::Success {
        apps.sort();
        for warning in unknown_apps(config, &apps) {
            anstream::eprintln!("{WARNING}warning:{WARNING:#} {warning}");
        }
    }
    Ok(outcome)
}

/// Prints a component, and warns of tools that no model can call.
fn report(inspection: &Inspection, limits: &Limits, file: &Path, is_json: bool) -> anyhow::Result<()> {
    if is_json {
        print_json(inspection, limits, file)?;
    } else {
        print(inspection, limits, file)?;
    }
    for warning in uncallable_tools(inspection) {
        let (file, warning) = (printable_path(file), escape_control(&warning));
        anstream::eprintln!("{WARNING}warning:{WARNING:#} {file}: {warning}");
    }
    Ok(())
}

/// Prints the error of a file that is not a component.
fn report_failure(error: &anyhow::Error, file: &Path, is_json: bool) -> anyhow::Result<()> {
    let error = format_error(error);
    if is_json {
        print_line(&json!({"file": file.display().to_string(), "error": error}))?;
    } else {
        let (file, error) = (printable_path(file), escape_control(&error));
        anstream::eprintln!("{ERROR}{file}:{ERROR:#} {error}");
    }
    Ok(())
}

/// Returns the names of the YAML apps in a folder.
fn yaml_app_names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let roots = files::find(folder, |name| name == ROOT_FILE)?;
    let name = |root: &PathBuf| Some(root.parent()?.file_name()?.to_string_lossy().into_owned());
    Ok(roots.iter().filter_map(name).collect())
}

fn print_json(inspection: &Inspection, limits: &Limits, file: &Path) -> anyhow::Result<()> {
    let mut line = serde_json::to_value(inspection)?;
    if let Value::Object(line) = &mut line {
        line.insert("file".into(), json!(file.display().to_string()));
        let limits = json!({
            "memory": limits.memory, "tables": limits.tables, "instances": limits.instances,
            "cpuSeconds": limits.cpu.as_secs_f64(), "wallSeconds": limits.wall.as_secs_f64(),
            "agentWallSeconds": limits.agent_wall.as_secs_f64(), "result": limits.result, "log": limits.log,
        });
        line.insert("limits".into(), limits);
    }
    Ok(print_line(&line)?)
}

fn print_line(line: &Value) -> io::Result<()> {
    writeln!(plain_stdout(), "{line}")
}

fn print(inspection: &Inspection, limits: &Limits, file: &Path) -> io::Result<()> {
    let mut out = stdout();
    print_header(inspection, file, &mut out)?;
    print_agents(inspection, &mut out)?;
    print_tools(inspection, &mut out)?;
    print_other_items(inspection, &mut out)?;
    let imports = short_names(&inspection.imports);
    let imports = if imports.is_empty() { "none".into() } else { imports.join(", ") };
    writeln!(out, "  imports   {}", escape_control(&imports))?;
    let mib = limits.memory.div_ceil(1 << 20);
    writeln!(out, "  limits    {mib} MiB memory, {:?} CPU time, {:?} total time", limits.cpu, limits.wall)?;
    print_grants(&inspection.grants, &mut out)
}

fn print_header(inspection: &Inspection, file: &Path, out: &mut impl Write) -> io::Result<()> {
    let (name, kib) = (escape_control(&inspection.name), inspection.size.div_ceil(1024));
    let contract = match &inspection.contract {
        Some(version) => format!("hatchery:agent {version}"),
        None => "plain WIT component".into(),
    };
    writeln!(out, "{BOLD}{name}{BOLD:#}  {DIM}{}, {kib} KiB, {contract}{DIM:#}", printable_path(file))?;
    if let Some(reason) = &inspection.refused {
        writeln!(out, "  {ERROR}refused{ERROR:#}   {}", escape_control(reason))?;
    }
    if !inspection.is_described {
        let exports = short_names(&inspection.exports).join(", ");
        writeln!(
            out,
            "  exports   {}  {DIM}(not run, so its agents and tools are unknown){DIM:#}",
            escape_control(&exports)
        )?;
    }
    Ok(())
}

fn print_agents(inspection: &Inspection, out: &mut impl Write) -> io::Result<()> {
    for agent in &inspection.agents {
        let app = if agent.is_app { "app, " } else { "" };
        let description = escape_control(&agent.description);
        writeln!(out, "  agent     {}  {DIM}{app}{}{DIM:#}  {description}", escape_control(&agent.name), agent.kind)?;
        let model: Vec<_> = agent.model.iter().cloned().collect();
        for (label, names) in [
            ("model", &model),
            ("tools", &agent.tools),
            ("toolsets", &agent.toolsets),
            ("sub-agents", &agent.sub_agents),
        ] {
            if !names.is_empty() {
                writeln!(out, "            {DIM}{label}: {}{DIM:#}", escape_control(&names.join(", ")))?;
            }
        }
    }
    Ok(())
}

fn print_tools(inspection: &Inspection, out: &mut impl Write) -> io::Result<()> {
    for tool in &inspection.tools {
        let long_running = if tool.is_long_running { "long-running  " } else { "" };
        let approval = if tool.requires_confirmation { "needs approval  " } else { "" };
        let arguments = format_arguments(tool.parameters.as_ref());
        let (name, arguments) = (escape_control(&tool.name), escape_control(&arguments));
        let description = escape_control(&tool.description);
        writeln!(out, "  tool      {name}{DIM}({arguments}){DIM:#}  {long_running}{approval}{description}")?;
    }
    Ok(())
}

fn print_other_items(inspection: &Inspection, out: &mut impl Write) -> io::Result<()> {
    for callback in &inspection.callbacks {
        writeln!(out, "  callback  {}  {DIM}{}{DIM:#}", escape_control(&callback.name), callback.points.join(", "))?;
    }
    for plugin in &inspection.plugins {
        writeln!(out, "  plugin    {}  {DIM}{}{DIM:#}", escape_control(&plugin.name), plugin.hooks.join(", "))?;
    }
    for (label, names) in [
        ("toolset", &inspection.toolsets),
        ("executor", &inspection.code_executors),
        ("summarizer", &inspection.summarizers),
        ("examples", &inspection.examples),
        ("model", &inspection.models),
    ] {
        for name in names {
            writeln!(out, "  {label:<9} {}", escape_control(name))?;
        }
    }
    Ok(())
}

/// Prints the requested, granted, missing and unused grants, one line per key.
fn print_grants(grants: &GrantReport, out: &mut impl Write) -> io::Result<()> {
    let no_requests = GrantEntries::new();
    let requested = grants.requested.as_ref().unwrap_or(&no_requests);
    for (label, entries_by_key) in [
        ("requests", requested),
        ("granted", &grants.granted),
        ("missing", &grants.missing),
        ("unused", &grants.unused),
    ] {
        for (key, entries) in entries_by_key {
            write!(out, "  {label:<9} {key}: {}", escape_control(&entries.join(", ")))?;
            match grants.why.get(key.split('.').next().unwrap_or(key)).filter(|_| label == "requests") {
                Some(reason) => writeln!(out, "  {DIM}{}{DIM:#}", escape_control(reason))?,
                None => writeln!(out)?,
            }
        }
    }
    Ok(())
}

/// Returns short names of imports or exports without duplicates: `session` for `hatchery:agent/session@0.2.0`, the
/// package for other interfaces. Leaves out interfaces that contain only types.
fn short_names(interfaces: &[String]) -> Vec<&str> {
    let all = interfaces.iter().filter_map(|interface| match interface.split_once('/') {
        Some(("hatchery:agent", name)) => name.split('@').next().filter(|name| !matches!(*name, "types" | "specs")),
        Some((package, _)) => Some(package),
        None => Some(interface.as_str()),
    });
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Formats the parameters of a tool, for example `sides: integer, label?: string`.
fn format_arguments(schema: Option<&Value>) -> String {
    let Some(schema) = schema else { return String::new() };
    let required: Vec<_> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let format = |(name, schema): (&String, &Value)| {
        let optional = if required.contains(&name.as_str()) { "" } else { "?" };
        match schema.get("type") {
            Some(Value::String(kind)) => format!("{name}{optional}: {kind}"),
            _ => format!("{name}{optional}"),
        }
    };
    properties.into_iter().flatten().map(format).collect::<Vec<_>>().join(", ")
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
        assert_eq!(format_arguments(Some(&schema)), "sides: integer, label?: string, any");
        assert_eq!(format_arguments(None), "");
    }

    #[test]
    fn imports_have_short_names() {
        let imports = [
            "hatchery:agent/types@0.2.0",
            "hatchery:agent/session@0.2.0",
            "wasi:io/poll@0.2.6",
            "wasi:clocks/monotonic-clock@0.2.6",
            "wasi:io/error@0.2.6",
        ];
        assert_eq!(short_names(&imports.map(Into::into)), ["session", "wasi:io", "wasi:clocks"]);
    }

    #[tokio::test]
    async fn a_file_that_is_no_component_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.wasm");
        std::fs::write(&file, "not wasm").unwrap();
        assert_eq!(
            run(Args { path: file.clone(), config: ConfigArgs::default(), json: true }).await.unwrap(),
            Outcome::Failure
        );
        let options =
            hatchery::catalog::load_options(&Config::default(), None, hatchery_wasm::Worker::InProcess).unwrap();
        let error = inspect_file(&options, &file).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("is not a WebAssembly file"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        let error = run(Args { path: empty.path().into(), config: ConfigArgs::default(), json: false })
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("create one with `hatchery build`"), "{error}");
    }
}
