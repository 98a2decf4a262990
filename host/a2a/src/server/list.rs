//! Lists of tasks. They are made from the stored runs of a context; events are read for the tasks of one page only.

use std::cmp::Reverse;
use std::collections::HashMap;

use hatchery_core::StoredRun;
use hatchery_engine::App;

use super::A2aService;
use super::task_id::{self, TaskId};
use super::tasks::{self, StoredTask};
use crate::error::A2aError;
use crate::model::{ListRequest, Task, TaskPage};

/// Maximum and default number of tasks of a page.
const MAX_PAGE_SIZE: u32 = 100;
const DEFAULT_PAGE_SIZE: u32 = 50;

/// Number of runs that are read at a time.
const PAGE_RUNS: usize = 256;

impl A2aService {
    /// Lists the tasks of a context, the last changed first. Without a context the list is empty: clients that
    /// are not authenticated only see tasks of a context that they know.
    pub(super) async fn list(&self, app: &App, request: ListRequest) -> Result<TaskPage, A2aError> {
        let page_size = request.page_size.unwrap_or(DEFAULT_PAGE_SIZE);
        if !(1..=MAX_PAGE_SIZE).contains(&page_size) {
            return Err(A2aError::invalid_params(format!("`pageSize` is a number from 1 to {MAX_PAGE_SIZE}")));
        }
        let offset = match request.page_token.as_deref().map(str::parse::<usize>) {
            None => 0,
            Some(Ok(offset)) => offset,
            Some(Err(_)) => return Err(A2aError::invalid_params("`pageToken` is not valid for this list")),
        };
        let mut found = match request.context_id.as_deref().filter(|context| task_id::is_context(context)) {
            Some(context) => self.tasks_of(app, context).await?,
            None => Vec::new(),
        };
        if let Some(since) = request.changed_since {
            // Clients know times in milliseconds.
            let since = since.as_micros().div_euclid(1_000);
            found.retain(|task| task.updated_at().is_some_and(|time| time.as_micros().div_euclid(1_000) >= since));
        }
        if let Some(state) = request.state {
            if state.is_interrupted() {
                // Only the events show whether a task waits for input or for authorization.
                found.retain(|task| task.state().is_interrupted());
                tasks::read_events(&self.0.runner, &mut found).await?;
            }
            found.retain(|task| task.state() == state);
        }
        found.sort_by_cached_key(|task| (Reverse(task.updated_at()), task.id.to_string()));
        let total = found.len();
        let mut page: Vec<_> = found.into_iter().skip(offset).take(page_size as usize).collect();
        tasks::read_events(&self.0.runner, &mut page).await?;
        let end = offset.saturating_add(page.len());
        let tasks = page.iter().map(|task| {
            let task = task.task(request.history_length);
            let artifacts = if request.includes_artifacts { task.artifacts } else { Vec::new() };
            Task { artifacts, ..task }
        });
        Ok(TaskPage {
            tasks: tasks.collect(),
            next_page_token: if end < total { end.to_string() } else { String::new() },
            page_size,
            total: u32::try_from(total).unwrap_or(u32::MAX),
        })
    }

    /// Returns the tasks of a context, without their events.
    async fn tasks_of(&self, app: &App, context: &str) -> Result<Vec<StoredTask>, A2aError> {
        let service = tasks::run_service(&self.0.runner)?;
        let session = task_id::session(&app.name, context, self.1.user.as_ref());
        let (mut found, mut from) = (HashMap::<String, (TaskId, Vec<StoredRun>)>::new(), None);
        loop {
            let page = service.list(&session, from, PAGE_RUNS).await?;
            for run in page.runs {
                let Some(id) = TaskId::from_run(&run.id, context, self.1.user.clone()) else { continue };
                let (_, runs) = found.entry(id.run(1)).or_insert_with(|| (id, Vec::new()));
                runs.push(StoredRun { request: None, ..run });
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        let tasks = found.into_values().filter_map(|(id, mut runs)| {
            runs.reverse();
            StoredTask::new(id, session.clone(), runs)
        });
        Ok(tasks.collect())
    }
}
