//! Runs of encrypted sessions.

use async_trait::async_trait;
use hatchery_core::{
    RunFailure, RunPage, RunService, RunTransition, SessionKey, StoreError, StoredRun, WrapperSessionService,
};

use super::keys::EncryptionKeys;
use super::records::Record;
use super::sessions::EncryptedSessions;

/// The texts of a run.
#[derive(Clone, Copy)]
enum RunText {
    Request,
    Failure,
}

impl RunText {
    fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Failure => "failure",
        }
    }

    /// Seals or opens a string of a run.
    fn convert(
        self,
        session: &SessionKey,
        run: &str,
        convert: impl FnOnce(Record<'_>) -> Result<String, StoreError>,
    ) -> Result<String, StoreError> {
        let subject = format!("the {} of run `{run}` ({session})", self.name());
        convert(Record { subject: &subject, context: &[self.name(), &session.app, &session.user, run] })
    }
}

fn seal_run(keys: &EncryptionKeys, run: &StoredRun) -> Result<StoredRun, StoreError> {
    let seal = |kind: RunText, text: &str| kind.convert(&run.session, &run.id, |record| keys.seal_text(record, text));
    Ok(StoredRun {
        request: run.request.as_deref().map(|request| seal(RunText::Request, request)).transpose()?,
        failure: match &run.failure {
            Some(RunFailure { code, message }) => {
                Some(RunFailure { code: code.clone(), message: seal(RunText::Failure, message)? })
            }
            None => None,
        },
        ..run.clone()
    })
}

fn open_run(keys: &EncryptionKeys, stored: StoredRun) -> Result<StoredRun, StoreError> {
    let open =
        |kind: RunText, text: String| kind.convert(&stored.session, &stored.id, |record| keys.open_text(record, text));
    let request = stored.request.clone().map(|request| open(RunText::Request, request)).transpose()?;
    let failure = match stored.failure.clone() {
        Some(RunFailure { code, message }) => Some(RunFailure { code, message: open(RunText::Failure, message)? }),
        None => None,
    };
    Ok(StoredRun { request, failure, ..stored })
}

fn seal_transition(
    keys: &EncryptionKeys,
    session: &SessionKey,
    run: &str,
    transition: &RunTransition,
) -> Result<RunTransition, StoreError> {
    match transition {
        RunTransition::Fail(RunFailure { code, message }) => {
            let message = RunText::Failure.convert(session, run, |record| keys.seal_text(record, message))?;
            Ok(RunTransition::Fail(RunFailure { code: code.clone(), message }))
        }
        RunTransition::Start
        | RunTransition::Wait
        | RunTransition::Finish
        | RunTransition::Answer
        | RunTransition::Cancel
        | RunTransition::RequestCancel => Ok(transition.clone()),
    }
}

impl EncryptedSessions {
    fn inner_runs(&self) -> Result<&dyn RunService, StoreError> {
        let runs = WrapperSessionService::inner(self).runs();
        runs.ok_or_else(|| StoreError::InvalidRequest("this session service stores no runs".into()))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl RunService for EncryptedSessions {
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        open_run(&self.keys, self.inner_runs()?.add(&seal_run(&self.keys, run)?).await?)
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        open_run(&self.keys, self.inner_runs()?.start(&seal_run(&self.keys, run)?, fence).await?)
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        let transition = seal_transition(&self.keys, session, run, transition)?;
        let changed = self.inner_runs()?.change(session, run, fence, &transition).await?;
        changed.map(|run| open_run(&self.keys, run)).transpose()
    }

    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        self.inner_runs()?.start_later(&seal_run(&self.keys, run)?, fence).await
    }

    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        let transition = seal_transition(&self.keys, session, run, transition)?;
        self.inner_runs()?.change_later(session, run, fence, &transition).await
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        self.inner_runs()?.get(session, run).await?.map(|run| open_run(&self.keys, run)).transpose()
    }

    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        let RunPage { runs, next } = self.inner_runs()?.list(session, from, limit).await?;
        let runs = runs.into_iter().map(|run| open_run(&self.keys, run)).collect::<Result<_, _>>()?;
        Ok(RunPage { runs, next })
    }

    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        self.inner_runs()?.find_running(session).await
    }

    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        self.inner_runs()?.has_turn(session).await
    }

    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        let runs = self.inner_runs()?.list_interrupted(apps, limit).await?;
        runs.into_iter().map(|run| open_run(&self.keys, run)).collect()
    }
}
