//! The output of `hatchery serve`: the address, the apps, and files that cannot be served.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use hatchery::shell::{quote_path, session_commands};
use hatchery::{AppSource, CatalogReport};
use serde_json::json;

use super::listen::ListenAddress;
use crate::progress;
use crate::projects::explain_unbuilt;
use crate::rejections::rejections;
use crate::terminal::{BOLD, DIM, ERROR, WARNING, escape_control, plain_stdout, stdout};

/// A server to describe on standard output.
pub(super) struct Announcement<'a> {
    pub(super) folder: &'a Path,
    pub(super) listen: &'a ListenAddress,
    pub(super) url: &'a str,
    pub(super) source: &'a dyn AppSource,
    pub(super) is_json: bool,
    pub(super) has_auth: bool,
}

impl Announcement<'_> {
    /// Prints the address of the server, and the apps or the components that are still loading.
    pub(super) fn write_first(&self, loading: &[String], has_dev_ui: bool) -> anyhow::Result<()> {
        if self.is_json {
            return write_json(self.listen, self.url, self.source, loading);
        }
        let url = self.url;
        // Browsers open no sockets.
        let has_page = has_dev_ui && self.listen.socket().is_none();
        let page = if has_page { format!("  {DIM}developer UI: {url}/dev-ui{DIM:#}") } else { String::new() };
        let address = self.listen.socket().map_or_else(|| url.to_owned(), |_| self.listen.to_string());
        progress::suspend(|| writeln!(stdout(), "{BOLD}Serving {}{BOLD:#}{page}", escape_control(&address)))?;
        if loading.is_empty() {
            return self.write_loaded();
        }
        progress::suspend(|| writeln!(stdout(), "still loading: {}", loading.join(", ")))?;
        Ok(stdout().flush()?)
    }

    /// Prints the apps when everything is loaded.
    pub(super) fn write_loaded(&self) -> anyhow::Result<()> {
        if self.is_json { write_json(self.listen, self.url, self.source, &[]) } else { self.write_apps() }
    }

    /// Prints the apps, commands that send a first message, and problems.
    fn write_apps(&self) -> anyhow::Result<()> {
        let report = self.source.report();
        let mut text =
            self.source.app_names().first().map_or_else(|| self.no_apps(), |first| self.first_message(first));
        for conflict in conflicts(&report) {
            text.push_str(&format!("\n{ERROR}conflict:{ERROR:#} {}", escape_control(conflict)));
        }
        for reason in rejections(&report) {
            text.push_str(&format!("\n{ERROR}not loaded:{ERROR:#} {}", escape_control(&reason)));
        }
        for warning in &report.warnings {
            text.push_str(&format!("\n{WARNING}warning:{WARNING:#} {}", escape_control(warning)));
        }
        progress::suspend(|| writeln!(stdout(), "{text}"))?;
        Ok(stdout().flush()?)
    }

    /// Returns the names of the apps, and commands that send a message to the first one.
    fn first_message(&self, first: &str) -> String {
        let commands = session_commands(self.url, first, self.has_auth);
        let commands = match self.listen.socket() {
            Some(path) => commands.replace("curl ", &format!("curl --unix-socket {} ", quote_path(path))),
            None => commands,
        };
        let commands = indent(&escape_control(&commands));
        let key = if self.has_auth { ", with an API key of server.auth in the variable KEY" } else { "" };
        format!("apps: {}\ntry{key}:\n{commands}", escape_control(&self.source.app_names().join(", ")))
    }

    fn no_apps(&self) -> String {
        match explain_unbuilt(self.folder, None) {
            Some(unbuilt) => format!("no app is loaded; {}", escape_control(&unbuilt)),
            None => format!(
                "no app is loaded; add a component or a folder with root_agent.yaml, or run `hatchery doctor {}`",
                quote_path(self.folder)
            ),
        }
    }
}

fn write_json(listen: &ListenAddress, url: &str, source: &dyn AppSource, loading: &[String]) -> anyhow::Result<()> {
    let report = source.report();
    let failed: Vec<_> = report.files.iter().filter(|file| file.reason.is_some()).collect();
    let line = json!({
        "address": listen.to_string(), "url": url, "apps": source.app_names(), "loading": loading,
        "failed": failed, "conflicts": conflicts(&report), "warnings": report.warnings,
    });
    let mut out = plain_stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Returns the name conflicts, one sentence each. Files of the same conflict have the same sentence.
fn conflicts(report: &CatalogReport) -> BTreeSet<&str> {
    let files = report.files.iter().filter(|file| file.state == "conflict");
    let files = files.filter_map(|file| file.reason.as_deref());
    files.chain(report.components.iter().flat_map(|component| &component.conflicts).map(String::as_str)).collect()
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use hatchery::trust::ConfigSource;
    use hatchery::{ComponentReport, FileReport};

    use super::*;
    use crate::host::{StorageArgs, builder};

    #[tokio::test]
    async fn a_folder_without_apps_is_announced_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let host = builder(ConfigSource::new(folder.path()), &StorageArgs::in_memory()).open().await.unwrap();
        let (folder, listen) = (folder.path(), ListenAddress::Unix("socket".into()));
        let announcement = Announcement {
            folder,
            listen: &listen,
            url: "http://localhost",
            source: host.apps().as_ref(),
            is_json: false,
            has_auth: false,
        };
        let without_project = format!(
            "no app is loaded; add a component or a folder with root_agent.yaml, or run `hatchery doctor {}`",
            folder.display()
        );
        assert_eq!(announcement.no_apps(), without_project);
        let project = folder.join("words");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("package.json"), "{\"hatchery\": {}}").unwrap();
        let project = project.display();
        let with_project = format!("no app is loaded; not built yet: {project}; run `hatchery build {project}`");
        assert_eq!(announcement.no_apps(), with_project);
    }

    #[tokio::test]
    async fn the_commands_of_a_server_with_authentication_need_a_key() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("hello")).unwrap();
        let agent = "name: hello\ninstruction: Talk.\n";
        std::fs::write(folder.path().join("hello/root_agent.yaml"), agent).unwrap();
        let host = builder(ConfigSource::new(folder.path()), &StorageArgs::in_memory()).open().await.unwrap();
        let listen = ListenAddress::Unix("socket".into());
        let first_message = |has_auth| {
            let announcement = Announcement {
                folder: folder.path(),
                listen: &listen,
                url: "http://localhost",
                source: host.apps().as_ref(),
                is_json: false,
                has_auth,
            };
            announcement.first_message("hello")
        };
        let open = first_message(false);
        assert!(open.starts_with("apps: hello\ntry:\n  curl ") && !open.contains("$KEY"), "{open}");
        let closed = first_message(true);
        let expected = "apps: hello\ntry, with an API key of server.auth in the variable KEY:\n  curl ";
        assert!(closed.starts_with(expected) && closed.contains("$KEY"), "{closed}");
    }

    #[test]
    fn every_name_conflict_is_printed_once() {
        let file = |state: &str| FileReport {
            state: state.into(),
            reason: Some(format!("{state}!")),
            ..FileReport::default()
        };
        let component = ComponentReport { conflicts: vec!["the tool is taken".into()], ..ComponentReport::default() };
        let (files, components) = (vec![file("rejected"), file("conflict"), file("conflict")], vec![component]);
        let report = CatalogReport { files, components, ..CatalogReport::default() };
        assert_eq!(Vec::from_iter(conflicts(&report)), ["conflict!", "the tool is taken"]);
    }
}
