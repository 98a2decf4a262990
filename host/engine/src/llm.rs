//! LLM agents: asks the [`AgentLoop`] for the next action, and performs it.

pub mod agent_loop;
pub(crate) mod code;
mod examples;
mod live;
mod model_call;
mod output_schema;
mod planning;
mod request;
mod static_instruction;
pub(crate) mod tool_resolution;
mod tools;
pub(crate) mod transfer;

use std::sync::Arc;

use futures::FutureExt;
use hatchery_core::{AgentContext, AgentId, Event, LlmAgent, RunError, RunLimit, Tool};

use agent_loop::{AgentLoop, AgentLoopSettings, LoopAction};
pub use model_call::assign_call_ids;

use crate::plugins::HookChain;
use crate::run::{AgentOutcome, LiveInput, Replay, RunContext, is_live};

/// Runs an LLM agent once.
pub(crate) async fn run_llm_agent(
    run: &Arc<RunContext>,
    id: AgentId,
    llm: &LlmAgent,
    cx: &AgentContext,
    replay: &Replay,
) -> Result<AgentOutcome, RunError> {
    output_schema::ensure_usable(llm, &cx.call).await?;
    let mut driver = LoopDriver { run, id, llm, cx, replay, tools: tool_resolution::static_tools(run, id, llm) };
    let mut agent_loop = AgentLoop::new(AgentLoopSettings {
        max_steps: llm.max_steps,
        can_pause: run.app.settings.resumable,
        can_run_code: code::on_host(llm).is_some(),
        can_answer_by_tool: llm.output_schema.is_some(),
    });
    agent_loop.record_user_response([], run.take_answers(&cx.call.agent));
    loop {
        match agent_loop.next_action() {
            LoopAction::CallModel => {
                driver.resolve_tools().await?;
                if let Some(input) = driver.live_input() {
                    // Boxed, because it would triple the size of the future of all agents.
                    return driver.converse(input).boxed().await;
                }
                agent_loop.record_model_event(driver.replay_or_run(|| driver.call_model()).await?);
            }
            LoopAction::CallTools(event) => {
                let results = driver.call_tools(&event).await?;
                agent_loop.record_tool_event(results.event, results.pending_ids);
            }
            LoopAction::CallAnswered(calls) => {
                driver.resolve_tools().await?;
                let results = driver.call_answered(calls).await?;
                agent_loop.record_tool_event(results.event, results.pending_ids);
            }
            LoopAction::EmitAnswer(answer) => {
                agent_loop.record_model_event(driver.replay_or_run(|| driver.emit_answer(answer)).await?);
            }
            LoopAction::RunCode(event) => {
                agent_loop.record_code_event(&*driver.replay_or_run(|| driver.run_code(&event)).await?);
            }
            LoopAction::Pause(calls) => match replay.response_to(&calls) {
                Some(response) => {
                    let ids = response.function_responses().filter_map(|response| response.id.as_deref());
                    agent_loop.record_user_response(ids, run.answers_in(&response, &cx.call.agent));
                }
                None => return Ok(AgentOutcome::Paused),
            },
            LoopAction::Transfer(target) => return transfer::find_target(run, id, &target).map(AgentOutcome::Transfer),
            LoopAction::LimitReached(max_steps) => {
                return Err(RunError::Limit {
                    limit: RunLimit::Steps,
                    value: u64::from(max_steps),
                    agent: cx.call.agent.to_string(),
                });
            }
            LoopAction::Done => return Ok(AgentOutcome::Done),
        }
    }
}

/// Performs the actions of one [`AgentLoop`].
struct LoopDriver<'a> {
    run: &'a Arc<RunContext>,
    id: AgentId,
    llm: &'a LlmAgent,
    cx: &'a AgentContext,
    replay: &'a Replay,
    /// The agent's own tools, those that its toolsets returned for the current step, the tool that transfers to other
    /// agents, and the tool that takes an answer of the output schema.
    tools: Vec<Arc<dyn Tool>>,
}

impl LoopDriver<'_> {
    /// Returns the event of the next action: the recorded one, or the one that performing the action returns.
    async fn replay_or_run<F>(&self, live: impl FnOnce() -> F) -> Result<Arc<Event>, RunError>
    where
        F: Future<Output = Result<Arc<Event>, RunError>>,
    {
        self.replay.replay_or_run(self.cx, |_| true, live).await
    }

    /// Returns the driver of the same agent whose events have the changes of another context.
    fn in_context<'b>(&'b self, cx: &'b AgentContext) -> LoopDriver<'b> {
        let Self { run, id, llm, cx: _, replay, tools } = self;
        LoopDriver { run, id: *id, llm, cx, replay, tools: tools.clone() }
    }

    /// Returns the input of a live conversation. `None` if the model is called instead.
    fn live_input(&self) -> Option<&LiveInput> {
        let RunContext { app, invocation, live, .. } = self.run.as_ref();
        live.as_ref().filter(|_| is_live(&app.tree, self.id, invocation.services.models.as_ref()))
    }

    /// Returns the hooks of the agent's model and tool calls.
    fn hooks(&self) -> HookChain {
        self.run.plugins.chain(&self.llm.callbacks)
    }

    fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.is_callable() && tool.declaration().name == name)
    }
}
