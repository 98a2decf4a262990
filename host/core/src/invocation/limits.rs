//! Limits of a run: its usage, the remaining budget, and model calls, which count towards both.

use std::sync::atomic::Ordering;

use futures::{StreamExt, stream};

use super::Invocation;
use crate::error::{RunError, RunLimit};
use crate::event::{Event, UsageMetadata};
use crate::id::SessionKey;
use crate::live::LiveConnection;
use crate::model::{LlmRequest, LlmResponse, Model, ResponseStream, StreamingMode};
use crate::run_config::RunConfig;
use crate::run_usage::ExceededLimit;

/// The remaining budget of a run. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemainingLimits {
    /// Model calls.
    pub llm_calls: Option<u64>,
    /// Tokens of model calls.
    pub tokens: Option<u64>,
    /// Stored events.
    pub events: Option<u64>,
    /// Bytes of the JSON of events.
    pub bytes: Option<u64>,
}

impl RemainingLimits {
    /// Returns the lower of each two limits.
    fn least(self, other: Self) -> Self {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            llm_calls: least(self.llm_calls, other.llm_calls),
            tokens: least(self.tokens, other.tokens),
            events: least(self.events, other.events),
            bytes: least(self.bytes, other.bytes),
        }
    }
}

impl Invocation {
    /// Returns the remaining limits of the run.
    pub fn remaining(&self) -> RemainingLimits {
        let RunConfig { max_llm_calls, max_tokens, max_events, max_run_bytes, .. } = self.run_config;
        let left = |max: u64, used: u64| (max > 0).then(|| max.saturating_sub(used));
        let usage = &self.usage;
        let own = RemainingLimits {
            llm_calls: left(max_llm_calls.into(), usage.llm_calls.load(Ordering::Relaxed).into()),
            tokens: left(max_tokens, usage.tokens.load(Ordering::Relaxed)),
            events: left(max_events.into(), usage.events.load(Ordering::Relaxed).into()),
            bytes: left(max_run_bytes, usage.event_bytes.load(Ordering::Relaxed)),
        };
        self.parent.as_ref().map_or(own, |parent| own.least(parent.remaining()))
    }

    /// Counts a round of the loop agent `agent`.
    ///
    /// # Errors
    /// [`RunError::Limit`] if the round exceeds `max_rounds`.
    pub fn count_round(&self, agent: &str) -> Result<(), RunError> {
        let rounds = self.usage.rounds.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let max = self.run_config.max_rounds;
        if max > 0 && rounds > max {
            return Err(RunError::Limit { limit: RunLimit::Rounds, value: u64::from(max), agent: agent.into() });
        }
        Ok(())
    }

    /// Counts a model call of `agent`.
    ///
    /// # Errors
    /// [`RunError::Limit`] if the call exceeds `max_llm_calls`.
    pub fn count_llm_call(&self, agent: &str) -> Result<(), RunError> {
        let calls = self.usage.llm_calls.fetch_add(1, Ordering::Relaxed) + 1;
        let max = self.run_config.max_llm_calls;
        if max > 0 && calls > max {
            return Err(RunError::Limit { limit: RunLimit::LlmCalls, value: u64::from(max), agent: agent.into() });
        }
        self.parent.as_ref().map_or(Ok(()), |parent| parent.count_llm_call(agent))
    }

    /// Counts an event of an agent before it is stored or forwarded. Once one exceeds a limit, all later ones do.
    ///
    /// # Errors
    /// [`RunError::Limit`] if the event exceeds `max_events` or `max_run_bytes`.
    pub fn count_event(&self, event: &Event) -> Result<(), RunError> {
        self.count(event, self.needs_json(event))
    }

    fn count(&self, event: &Event, needs_json: bool) -> Result<(), RunError> {
        let (max_events, max_bytes) = (self.run_config.max_events, self.run_config.max_run_bytes);
        if !event.partial && max_events > 0 {
            let events = self.usage.events.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            if events > max_events {
                return Err(self.exceed(RunLimit::Events, u64::from(max_events), event));
            }
        }
        // Speech is not stored, and ends with the run's time.
        if max_bytes > 0 && !(self.run_config.live.is_some() && event.is_media_chunk()) {
            // The event keeps its JSON for the store or the client, which need it next.
            let bytes = if needs_json { event.json().len() } else { event.json_len() } as u64;
            let bytes = self.usage.event_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            if bytes > max_bytes {
                return Err(self.exceed(RunLimit::EventBytes, max_bytes, event));
            }
        }
        self.parent.as_ref().map_or(Ok(()), |parent| parent.count(event, needs_json))
    }

    /// Returns true if the JSON of the event is needed after it is counted. The temporary session of an agent that is
    /// called as a tool is not stored, and only its journal needs the JSON.
    fn needs_json(&self, event: &Event) -> bool {
        !self.is_in_tool || (!event.partial && self.journal.is_some())
    }

    /// Records that an event has exceeded a limit. The first one of a run is written to the audit log.
    fn exceed(&self, limit: RunLimit, value: u64, event: &Event) -> RunError {
        let exceeded = ExceededLimit { limit, value, agent: event.author.clone() };
        if self.usage.record_exceeded(exceeded.clone()) {
            let SessionKey { app, user, id: session } = &self.session_key;
            let origin = self.caller.origin;
            let detail = format!("{limit} of {value} reached by agent `{}`", exceeded.agent);
            tracing::warn!(
                target: "hatchery::audit", %app, %user, %session, invocation = self.id, %origin, limit = limit.key(), detail,
                "limit"
            );
        }
        exceeded.into()
    }

    /// Returns the error of the limit of events or bytes that the run has exceeded. It ends the run even if the agent
    /// ignores the error.
    pub fn exceeded_limit(&self) -> Option<RunError> {
        self.usage.exceeded_limit().cloned().map(RunError::from)
    }

    fn check_tokens(&self, agent: &str) -> Result<(), RunError> {
        let max = self.run_config.max_tokens;
        if max > 0 && self.usage.tokens.load(Ordering::Relaxed) >= max {
            return Err(RunError::Limit { limit: RunLimit::Tokens, value: max, agent: agent.into() });
        }
        self.parent.as_ref().map_or(Ok(()), |parent| parent.check_tokens(agent))
    }

    /// Calls a model for `agent`, and counts the call and the tokens of the response. Schemas in Gemini's dialect
    /// become JSON Schema. All model calls of a run use this function.
    ///
    /// # Errors
    /// If the model refuses the request, a limit is reached or the run is cancelled.
    pub async fn generate(
        &self,
        agent: &str,
        model: &dyn Model,
        mut request: LlmRequest,
        streaming_mode: StreamingMode,
    ) -> Result<ResponseStream, RunError> {
        request.normalize_schemas();
        self.check_tokens(agent)?;
        self.count_llm_call(agent)?;
        self.ensure_turn().await?;
        // Runs of agents that are called as tools share the retries of the enclosing run.
        let outermost = self.and_parents().last().unwrap_or(self);
        request.progress.limit_retries(&outermost.usage, outermost.run_config.max_model_retries);
        match self.cancel.run_until_cancelled(model.generate(request, streaming_mode)).await {
            Some(responses) => Ok(self.count_tokens(responses?)),
            None => Err(RunError::Cancelled),
        }
    }

    /// Opens a live connection for `agent`, which counts as a call. All live connections of a run are opened by this
    /// function.
    ///
    /// # Errors
    /// If the model refuses the request, a limit is reached or the run is cancelled.
    pub async fn connect(
        &self,
        agent: &str,
        model: &dyn Model,
        mut request: LlmRequest,
    ) -> Result<Box<dyn LiveConnection>, RunError> {
        request.normalize_schemas();
        self.check_tokens(agent)?;
        self.count_llm_call(agent)?;
        self.ensure_turn().await?;
        let connecting = self.cancel.run_until_cancelled(model.connect(request));
        Ok(connecting.await.ok_or(RunError::Cancelled)??)
    }

    /// Counts the tokens that a live model has used, for this run and the enclosing runs.
    ///
    /// # Errors
    /// [`RunError::Limit`] if they reach `max_tokens`.
    pub fn count_live_tokens(&self, agent: &str, usage: &UsageMetadata) -> Result<(), RunError> {
        for run in self.and_parents() {
            run.usage.tokens.fetch_add(usage.total(), Ordering::Relaxed);
        }
        self.check_tokens(agent)
    }

    /// Returns the responses of a model call that was completed before the run was interrupted. It counts like a new
    /// one.
    pub(crate) fn replay_responses(
        &self,
        agent: &str,
        responses: Vec<LlmResponse>,
    ) -> Result<ResponseStream, RunError> {
        self.count_llm_call(agent)?;
        Ok(self.count_tokens(stream::iter(responses.into_iter().map(Ok)).boxed()))
    }

    /// Counts the tokens of a model call for this run and the enclosing runs, while its responses are read.
    fn count_tokens(&self, responses: ResponseStream) -> ResponseStream {
        self.and_parents().fold(responses, |responses, run| run.usage.clone().count_tokens(responses))
    }
}
