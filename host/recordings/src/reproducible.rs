//! Settings of apps that make two runs of the same conversation differ.

use std::sync::Arc;

use hatchery_engine::{App, AppSettings};

/// Returns the app without compaction. Summaries are created in the background, so the prompts of two sessions with the
/// same messages could differ.
pub fn without_compaction(app: &App) -> Arc<App> {
    let settings = AppSettings { compaction: None, ..app.settings.clone() };
    Arc::new(app.clone().with_settings(settings))
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Agent, AgentKind};
    use hatchery_engine::compaction::CompactionConfig;

    use super::*;

    #[test]
    fn recorded_and_replayed_apps_differ_only_in_compaction() {
        let app = App::new("app", Agent::new("root", "", AgentKind::Sequential)).unwrap();
        let compaction = Some(CompactionConfig::default());
        let app = app.with_settings(AppSettings { resumable: true, compaction, ..AppSettings::default() });
        let settings = &without_compaction(&app).settings;
        assert!(settings.resumable && settings.compaction.is_none());
    }
}
