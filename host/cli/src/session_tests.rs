//! Tests made of sessions, as ADK's web client writes them: `tests/NAME.json` in the folder of an app.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hatchery::{Host, TestedTurn};
use hatchery_recordings::SessionTest;

use crate::conversation::observe;
use crate::files;
use crate::host::find_app;
use crate::test_report::{TestReport, TurnReport};

const FOLDER: &str = "tests";

/// A file that is a test, if its folder is the folder of an app.
pub struct SessionTestFile {
    app: String,
    name: String,
    /// True if the folder has a `root_agent.yaml`.
    is_of_yaml_app: bool,
}

/// Returns the files in folders `tests` below `folder`, sorted.
pub fn find(folder: &Path) -> anyhow::Result<Vec<(PathBuf, SessionTestFile)>> {
    let files = files::find(folder, |name| name.ends_with(".json") && !name.starts_with('.'))?;
    Ok(files.into_iter().filter_map(|file| SessionTestFile::new(&file).map(|test| (file, test))).collect())
}

impl SessionTestFile {
    fn new(file: &Path) -> Option<Self> {
        let folder = file.parent().filter(|folder| folder.ends_with(FOLDER))?.parent()?;
        // A relative path may end before the name of the app.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let folder = folder.canonicalize().ok()?;
        Some(Self {
            app: folder.file_name()?.to_str()?.to_owned(),
            name: file.file_name()?.to_str()?.to_owned(),
            is_of_yaml_app: folder.join("root_agent.yaml").is_file(),
        })
    }

    /// Returns false for a file of something else: the folder `tests` of a component's project may have any files.
    pub fn is_test(&self, host: &Host, file: &Path) -> bool {
        let is_session = || std::fs::read(file).is_ok_and(|json| SessionTest::from_json(&json).is_ok());
        self.is_of_yaml_app || host.apps().app(&self.app).is_some() && is_session()
    }

    /// Runs the test up to the first turn that differs.
    pub async fn run(self, host: &Host, served: &Path, file: PathBuf) -> anyhow::Result<TestReport> {
        let tests = host.apps().app_files().context("no folder is served")?.tests();
        let mut report = TestReport::new(file, self.app);
        let app = match find_app(host.apps().as_ref(), served, &report.app) {
            Ok(app) => app,
            Err(error) => return Ok(TestReport { error: Some(error.to_string()), ..report }),
        };
        match tests.run(host.runner(), &app, &self.name).await {
            Ok(turns) => report.turns = turns.into_iter().map(turn_report).collect(),
            Err(error) => report.error = Some(error.to_string()),
        }
        Ok(report.complete())
    }
}

fn turn_report(TestedTurn { message, events, problem }: TestedTurn) -> TurnReport {
    TurnReport {
        user: message,
        passed: problem.is_none(),
        expectations: Vec::new(),
        observed: events.iter().flat_map(|event| observe(event)).map(|item| item.to_string()).collect(),
        problems: problem.into_iter().collect(),
    }
}
