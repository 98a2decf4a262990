//! `hatchery eval`: evaluates an app on eval sets.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use hatchery::Host;
use hatchery_engine::App;
use hatchery_eval::{CaseSummary, EvalRequest, EvalSetResult, Metric, parse_test_config, summarize};
use hatchery_telemetry::OtlpExporter;
use serde_json::json;
use tokio::runtime::Handle;

use crate::dotenv::DotEnvSource;
use crate::eval_report::{self, SetReport};
use crate::host::{self, ConfigArgs, StorageArgs, find_app};
use crate::interrupts::Interrupts;
use crate::outcome::Outcome;
use crate::progress::EvalProgress;
use crate::rejections::print_rejections;
use crate::terminal::{list_names, plain_stdout, stdout};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery eval my-agents/dice\n  \
    hatchery eval my-agents/dice primes --runs 5 --junit report.xml\n\n\
    Runs the app on the conversations of my-agents/dice/primes.evalset.json, and on the sets that were created in the \
    developer UI. Each conversation runs in a new session, which is not stored. The thresholds come from \
    my-agents/dice/test_config.json:\n\n  \
    {\"criteria\": {\"tool_trajectory_avg_score\": 1.0, \"response_match_score\": 0.8}}\n\n\
    Runs agents and components of the folder with the grants of hatchery.yaml. Grants for access outside of the folder need \
    `hatchery trust`.\n\n\
    Exit codes: 1 if a case has not passed or there is none, 130 after Ctrl-C.")]
pub struct Args {
    /// The served folder and the name of the app
    #[arg(value_name = "FOLDER/APP")]
    target: PathBuf,
    /// The ids of the eval sets; all of the app by default
    #[arg(value_name = "SET")]
    sets: Vec<String>,
    /// Run only the case with this id, and only sets that have it; can be repeated
    #[arg(long = "case", value_name = "ID")]
    cases: Vec<String>,
    /// Number of runs of each case; the mean score decides
    #[arg(long, default_value_t = 1, value_name = "N")]
    runs: u32,
    /// Number of concurrent runs
    #[arg(long, default_value_t = 4, value_name = "N")]
    parallel: usize,
    /// Use the metrics and thresholds of this file instead of the app's
    #[arg(long, value_name = "FILE")]
    test_config: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Write a report in JUnit's format
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        let folder = split_target(&self.target).map(|(folder, _)| folder);
        DotEnvSource::for_served_folder(folder.as_deref().unwrap_or(&self.target), &self.config)
    }
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, name) = split_target(&args.target)?;
    let metrics = args.test_config.as_deref().map(read_metrics).transpose()?;
    let mut interrupts = Interrupts::listen()?;
    let builder = host::builder(args.config.source(&folder), &StorageArgs::in_memory());
    let otlp = OtlpExporter::from_environment(Handle::current())?.map(Arc::new);
    let builder = otlp.iter().fold(builder, |builder, otlp| builder.export_spans(otlp.clone()));
    let Some(host) = interrupts.race(host::open(builder)).await.transpose()? else { return Ok(Outcome::Interrupted) };
    let app = find_target(&host, &folder, &name, &args);
    print_rejections(host.apps().as_ref(), &folder, app.as_ref().err());
    let app = app?;
    let sets = select_sets(&host, &app, &args).await?;
    let mut reports = Vec::new();
    for (set_id, case_ids) in sets {
        let request = EvalRequest {
            set_id,
            case_ids,
            metrics: metrics.clone(),
            num_runs: Some(args.runs),
            parallelism: Some(args.parallel),
        };
        let Some(result) = interrupts.race(evaluate(&host, &app, request)).await.transpose()? else {
            return Ok(Outcome::Interrupted);
        };
        let report = SetReport { app: app.name.clone(), cases: summarize(&result), result };
        if !args.json {
            report.print(&mut stdout())?;
        }
        reports.push(report);
    }
    host.close().await;
    if let Some(otlp) = otlp {
        tokio::task::spawn_blocking(move || otlp.shut_down()).await?;
    }
    finish(&args, &reports)
}

/// Returns the served folder and the name of the app.
fn split_target(target: &Path) -> anyhow::Result<(PathBuf, String)> {
    let absolute = std::path::absolute(target).with_context(|| target.display().to_string())?;
    // `.` and `..` have a name only once they are resolved.
    let absolute = if absolute.is_dir() { absolute.canonicalize()? } else { absolute };
    match (absolute.parent(), absolute.file_name().and_then(|name| name.to_str())) {
        (Some(folder), Some(name)) if folder.is_dir() => Ok((folder.to_owned(), name.to_owned())),
        (Some(folder), Some(_)) => bail!("{} is not a folder", folder.display()),
        _ => bail!("{} names no app; write FOLDER/APP", target.display()),
    }
}

/// Returns the app of the target.
///
/// # Errors
/// If it does not exist or cannot be used. A target that may be the served folder itself is explained: then the first
/// set is the app, as for `hatchery run`.
fn find_target(host: &Host, folder: &Path, name: &str, args: &Args) -> anyhow::Result<Arc<App>> {
    let target = &args.target;
    find_app(host.apps().as_ref(), folder, name).map_err(|error| {
        let app = args.sets.first().map_or("APP", String::as_str);
        if target.is_dir() && host.apps().report().reason_for_missing_app(name).is_none() {
            anyhow!("{error}; if {} is the served folder, write {}", target.display(), target.join(app).display())
        } else {
            error
        }
    })
}

fn read_metrics(file: &Path) -> anyhow::Result<Vec<Metric>> {
    let json = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(parse_test_config(&json, &file.display().to_string())?)
}

/// Returns the ids of the sets to run, each with the ids of its cases; all of its cases if there is no id.
async fn select_sets(host: &Host, app: &App, args: &Args) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let sets = if args.sets.is_empty() { host.evaluations().set_ids(app).await? } else { args.sets.clone() };
    if sets.is_empty() {
        bail!(
            "app `{}` has no eval sets; write {}/NAME.evalset.json, or make one of a session in the developer UI",
            app.name,
            args.target.display()
        );
    }
    if args.cases.is_empty() {
        return Ok(sets.into_iter().map(|id| (id, Vec::new())).collect());
    }
    let mut selected: Vec<(String, Vec<String>)> = Vec::new();
    for id in &sets {
        let set = host.evaluations().set(app, id).await?;
        let cases: Vec<String> = args.cases.iter().filter(|case| set.case(case).is_some()).cloned().collect();
        if !cases.is_empty() {
            selected.push((id.clone(), cases));
        }
    }
    let is_missing = |case: &&String| !selected.iter().any(|(_, cases)| cases.contains(*case));
    if let Some(case) = args.cases.iter().find(is_missing) {
        bail!("eval case not found: {case}; it is in none of the sets {}", list_names(&sets));
    }
    Ok(selected)
}

async fn evaluate(host: &Host, app: &Arc<App>, request: EvalRequest) -> anyhow::Result<EvalSetResult> {
    let progress = EvalProgress::start(&request.set_id);
    Ok(host.evaluations().evaluate(app, request, &|update| progress.update(update)).await?)
}

/// Prints the totals, and writes the report. A failure of one does not lose the other, since evaluations are expensive.
fn finish(args: &Args, reports: &[SetReport]) -> anyhow::Result<Outcome> {
    let cases = || reports.iter().flat_map(|report| &report.cases);
    let passed = cases().filter(|case: &&CaseSummary| eval_report::has_passed(case)).count();
    let failed = cases().count() - passed;
    let printed = if args.json {
        let sets: Vec<_> =
            reports.iter().map(|report| json!({"cases": report.cases, "result": report.result})).collect();
        writeln!(plain_stdout(), "{}", json!({"passed": passed, "failed": failed, "sets": sets}))
    } else {
        writeln!(stdout(), "{passed} passed, {failed} failed")
    };
    if let Some(file) = &args.junit {
        std::fs::write(file, eval_report::junit(reports))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    printed?;
    if passed + failed == 0 {
        let sets: Vec<_> = reports.iter().map(|report| report.result.eval_set_id.clone()).collect();
        bail!("nothing was evaluated: there are no cases in {}", list_names(&sets));
    }
    Ok(if failed == 0 { Outcome::Success } else { Outcome::Failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_an_app_after_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("dice")).unwrap();
        let expected = (root.clone(), "dice".to_owned());
        assert_eq!(split_target(&root.join("dice")).unwrap(), expected);
        assert_eq!(split_target(&root.join("dice/.")).unwrap(), expected);
        // An app of a component needs no folder.
        assert_eq!(split_target(&root.join("greeter")).unwrap(), (root.clone(), "greeter".into()));
        let missing = split_target(&root.join("no/dice")).unwrap_err().to_string();
        assert_eq!(missing, format!("{} is not a folder", root.join("no").display()));
        assert_eq!(split_target(Path::new("/")).unwrap_err().to_string(), "/ names no app; write FOLDER/APP");
    }
}
