//! Tests made of sessions, as ADK's web client writes them: `tests/NAME.json` in the folder of an app.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use hatchery::{AppTests, Host, TestedTurn};
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

    /// Returns false for a file of something else: the folder `tests` of a component's project may have any files, of
    /// any size.
    pub fn is_test(&self, host: &Host, file: &Path) -> bool {
        let is_session = || match read_at_most(file, AppTests::MAX_BYTES) {
            Ok(Some(json)) => SessionTest::from_json(&json).is_ok(),
            Ok(None) => {
                tracing::warn!("{} is too large for a test and does not run", file.display());
                false
            }
            Err(_) => false,
        };
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

/// Reads a file. `None` if it has more than `max` bytes, of which no more are read.
fn read_at_most(file: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= max).then_some(bytes))
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

#[cfg(test)]
mod tests {
    use hatchery_engine::build::custom;

    use super::*;

    #[tokio::test]
    async fn a_file_that_is_too_large_for_a_test_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let native = custom("native", |cx| async move {
            cx.say("Hello").await?;
            Ok(())
        });
        let host = Host::builder().folder(folder.path()).agent(native.build().unwrap()).open().await.unwrap();
        let tests = folder.path().join("native/tests");
        std::fs::create_dir_all(&tests).unwrap();
        let session = r#"{"events": [{"author": "user", "content": {"role": "user", "parts": [{"text": "Hi"}]}}]}"#;
        std::fs::write(tests.join("long.json"), session.to_owned() + &" ".repeat(16 << 20)).unwrap();
        std::fs::write(tests.join("other.json"), "{}").unwrap();
        std::fs::write(tests.join("session.json"), session).unwrap();
        let found = find(folder.path()).unwrap();
        let are_tests: Vec<_> = found.iter().map(|(file, test)| test.is_test(&host, file)).collect();
        assert_eq!(are_tests, [false, false, true]);
    }
}
