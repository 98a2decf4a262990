//! Files of a served folder that cannot be loaded.

use std::path::Path;

use hatchery::shell::quote_path;
use hatchery::{AppSource, CatalogReport};

use crate::terminal::{ERROR, WARNING, escape_control};

/// Returns the files that cannot be loaded, each with the first line of the reason.
pub fn rejections(report: &CatalogReport) -> Vec<String> {
    rejections_besides(report, "")
}

/// Returns the files that cannot be loaded, without those whose reason is in `error`.
fn rejections_besides(report: &CatalogReport, error: &str) -> Vec<String> {
    let files = report.files.iter().filter(|file| file.state == "rejected");
    let reasons = files.filter_map(|file| Some((&file.path, file.reason.as_deref()?.lines().next()?)));
    reasons
        .filter(|(_, reason)| !error.contains(reason))
        // The lines after the colon are left out.
        .map(|(path, reason)| (path, reason.trim_end_matches(':')))
        .map(|(path, reason)| if reason.contains(path) { reason.into() } else { format!("{path}: {reason}") })
        .collect()
}

/// Prints on stderr which files of a served folder are not loaded: in one line, because the app that runs does not need
/// them, or with the reasons if that app was not found. Leaves out the reason that the error about the app contains.
pub fn print_rejections(source: &dyn AppSource, folder: &Path, app_error: Option<&anyhow::Error>) {
    let report = source.report();
    if let Some(error) = app_error {
        for rejection in rejections_besides(&report, &error.to_string()) {
            anstream::eprintln!("{ERROR}not loaded:{ERROR:#} {}", escape_control(&rejection));
        }
    } else if let Some(warning) = summarize(&report, folder) {
        anstream::eprintln!("{WARNING}warning:{WARNING:#} {}", escape_control(&warning));
    }
}

/// Returns the files that are not loaded, with the command that shows the reasons. `None` if there are none.
fn summarize(report: &CatalogReport, folder: &Path) -> Option<String> {
    let files = report.files.iter().filter(|file| ["rejected", "conflict"].contains(&file.state.as_str()));
    let paths: Vec<_> = files.map(|file| file.path.as_str()).collect();
    let doctor = format!("hatchery doctor {}", quote_path(folder));
    (!paths.is_empty()).then(|| format!("not loaded: {}; `{doctor}` shows why", paths.join(", ")))
}

#[cfg(test)]
mod tests {
    use hatchery::FileReport;

    use super::*;

    fn file(path: &str, state: &str, reason: &str) -> FileReport {
        FileReport { path: path.into(), state: state.into(), reason: Some(reason.into()), ..FileReport::default() }
    }

    #[test]
    fn rejected_files_are_listed_with_one_line_of_their_reason() {
        let files = vec![
            file("a.wasm", "rejected", "it is damaged\nsecond line"),
            file("b.wasm", "rejected", "b.wasm: empty"),
            file("c.wasm", "conflict", "c.wasm and d.wasm"),
        ];
        let report = CatalogReport { files, ..CatalogReport::default() };
        assert_eq!(rejections(&report), ["a.wasm: it is damaged", "b.wasm: empty"]);
    }

    #[test]
    fn a_reason_that_the_error_contains_is_not_repeated() {
        let files = vec![
            file("a.wasm", "rejected", "it needs grants; add to hatchery.yaml:\ncomponents:"),
            file("b.wasm", "rejected", "b.wasm: empty"),
        ];
        let report = CatalogReport { files, ..CatalogReport::default() };
        let error = "app `a` cannot be used: it needs grants; add to hatchery.yaml:\ncomponents:";
        assert_eq!(rejections_besides(&report, error), ["b.wasm: empty"]);
        assert_eq!(rejections(&report), ["a.wasm: it needs grants; add to hatchery.yaml", "b.wasm: empty"]);
    }

    #[test]
    fn files_that_are_not_loaded_are_summarized_in_one_line() {
        let folder = Path::new("my-agents");
        let files =
            vec![file("a.wasm", "rejected", "x"), file("b.wasm", "conflict", "x"), file("c.wasm", "loaded", "x")];
        let report = CatalogReport { files, ..CatalogReport::default() };
        let expected = "not loaded: a.wasm, b.wasm; `hatchery doctor my-agents` shows why";
        assert_eq!(summarize(&report, folder).as_deref(), Some(expected));
        assert_eq!(summarize(&CatalogReport::default(), folder), None);
    }
}
