//! Workflow agents: sequential, parallel and loop.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use hatchery_core::{AgentId, AgentKind, Event, EventSink, RunError};
use tokio::task::JoinSet;

use super::run_agent;
use crate::run::{AgentOutcome, AgentScope, Branch, RunContext};
use crate::tasks::{in_current_scope, propagate_panic};

/// Runs the sub-agents in order.
pub(super) async fn run_sequential(
    run: &Arc<RunContext>,
    id: AgentId,
    scope: AgentScope,
) -> Result<AgentOutcome, RunError> {
    let mut outcome = AgentOutcome::Done;
    for sub_agent in run.app.tree.children(id) {
        outcome = run_agent(run.clone(), *sub_agent, scope.clone()).await?;
        if outcome == AgentOutcome::Paused {
            break;
        }
    }
    Ok(outcome)
}

/// Runs the sub-agents in order, round after round, until one escalates or `max_iterations` rounds are over. `None` is
/// no limit. An escalation ends this loop, and no enclosing loop or parallel agent.
pub(super) async fn run_loop(
    run: &Arc<RunContext>,
    id: AgentId,
    max_iterations: Option<u32>,
    scope: AgentScope,
) -> Result<AgentOutcome, RunError> {
    let sub_agents = run.app.tree.children(id);
    let mut round = 0;
    while !sub_agents.is_empty() && max_iterations.is_none_or(|most| round < most) {
        run.invocation.count_round(&run.agent(id).name)?;
        for sub_agent in sub_agents {
            let sink = EscalationSink::new(run, EscalationEffect::EndsLoop, scope.sink.clone());
            let outcome = run_agent(run.clone(), *sub_agent, AgentScope { sink: sink.clone(), ..scope.clone() }).await;
            if let Some(outcome) = sink.outcome() {
                return Ok(outcome);
            }
            if outcome? == AgentOutcome::Paused {
                return Ok(AgentOutcome::Paused);
            }
        }
        round += 1;
        // A loop of agents that never wait could otherwise not be cancelled.
        tokio::task::yield_now().await;
    }
    Ok(AgentOutcome::Done)
}

/// Runs the sub-agents at the same time, each in its own task and branch. A sub-agent continues only after its
/// event was stored and queued for the client, so a slow client slows all of them down. The first failure ends the
/// others, and so does the first escalation that is not inside a loop of its branch. A pause does not.
pub(super) async fn run_parallel(
    run: &Arc<RunContext>,
    id: AgentId,
    scope: AgentScope,
) -> Result<AgentOutcome, RunError> {
    let sink = EscalationSink::new(run, EscalationEffect::EndsBranches, scope.sink.clone());
    let children = run.app.tree.children(id);
    let branch = |child: &AgentId| nested_branch(&scope.branch, &run.agent(id).name, &run.agent(*child).name);
    let branches: Vec<Arc<str>> = children.iter().map(branch).collect();
    let replays =
        scope.replay.fork(&branches, |event| escalates_to(run, id, event), |event| is_from_code_above(run, id, event));
    let mut tasks = JoinSet::new();
    for ((sub_agent, branch), replay) in children.iter().zip(branches).zip(&replays) {
        let scope =
            AgentScope { branch: Some(branch), replay: replay.clone(), sink: sink.clone(), span: scope.span.clone() };
        tasks.spawn(in_current_scope(run_agent(run.clone(), *sub_agent, scope)));
    }
    let (mut result, mut is_over) = (Ok(AgentOutcome::Done), false);
    while let Some(output) = tasks.join_next().await {
        result = match (propagate_panic(output), result) {
            (Err(RunError::Stopped), result) if replays.iter().any(|replay| replay.is_closed()) => {
                is_over = true;
                result
            }
            (Ok(AgentOutcome::Paused), _) | (Ok(_), Ok(AgentOutcome::Paused)) => Ok(AgentOutcome::Paused),
            (Ok(AgentOutcome::Done | AgentOutcome::Escalated | AgentOutcome::Transfer(_)), _) => Ok(AgentOutcome::Done),
            (Err(error), _) => Err(error),
        };
        if sink.outcome().is_some() || result.is_err() {
            break;
        }
    }
    // The other branches may emit events until their tasks have ended.
    tasks.shutdown().await;
    scope.replay.join(&replays);
    match sink.outcome() {
        Some(outcome) => Ok(outcome),
        None if is_over => scope.replay.check_failure(&run.agent(id).name).and(result),
        None => result,
    }
}

/// Returns true for events of custom agents above the agent, which may come between the events of its branches.
fn is_from_code_above(run: &RunContext, id: AgentId, event: &Event) -> bool {
    let tree = &run.app.tree;
    tree.find_agent(&event.author).is_some_and(|author| {
        matches!(tree.agent(author).kind, AgentKind::Custom(_)) && tree.ancestors(id).any(|above| above == author)
    })
}

/// Returns true if the event escalates to the agent: no loop between its author and the agent handles it.
fn escalates_to(run: &RunContext, id: AgentId, event: &Event) -> bool {
    let tree = &run.app.tree;
    let author = tree.find_agent(&event.author);
    let mut between = author.into_iter().flat_map(|author| tree.ancestors(author)).take_while(|above| *above != id);
    event.actions.escalate == Some(true)
        && !between.any(|above| matches!(tree.agent(above).kind, AgentKind::Loop { .. }))
}

/// Returns `outer.parallel.sub`. The name of a parallel agent that `outer` ends in is not repeated.
fn nested_branch(outer: &Branch, parallel: &str, sub_agent: &str) -> Arc<str> {
    let parent = outer.as_deref().filter(|outer| outer.rsplit('.').next() == Some(parallel));
    match (outer, parent) {
        (None, _) => format!("{parallel}.{sub_agent}").into(),
        (Some(_), Some(outer)) => format!("{outer}.{sub_agent}").into(),
        (Some(outer), None) => format!("{outer}.{parallel}.{sub_agent}").into(),
    }
}

/// The effect of an escalation on the enclosing agent.
#[derive(Clone, Copy, PartialEq)]
enum EscalationEffect {
    /// It ends the loop only.
    EndsLoop,
    /// It ends the branches of the parallel agent, and is passed on to the parent agent.
    EndsBranches,
}

/// Forwards events until one escalates. After that, it stops the agents that emit to it.
struct EscalationSink {
    run: Arc<RunContext>,
    effect: EscalationEffect,
    outer: Arc<dyn EventSink>,
    /// The outcome of the enclosing agent, once an event has escalated.
    outcome: OnceLock<AgentOutcome>,
}

impl EscalationSink {
    fn new(run: &Arc<RunContext>, effect: EscalationEffect, outer: Arc<dyn EventSink>) -> Arc<Self> {
        Arc::new(Self { run: run.clone(), effect, outer, outcome: OnceLock::new() })
    }

    fn outcome(&self) -> Option<AgentOutcome> {
        self.outcome.get().copied()
    }
}

#[async_trait]
impl EventSink for EscalationSink {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        if self.outcome().is_some() {
            return Err(RunError::Stopped);
        }
        let escalates = !event.partial && event.actions.escalate == Some(true);
        if !escalates || self.run.is_escalation_handled(&event.id) {
            return self.outer.emit(event).await;
        }
        if self.effect == EscalationEffect::EndsLoop {
            self.run.handle_escalation(&event.id);
        }
        let outcome = if event.is_final_response() { AgentOutcome::Done } else { AgentOutcome::Escalated };
        match self.outer.emit(event).await {
            // `Stopped` means that the event also ended an enclosing agent.
            Ok(_) | Err(RunError::Stopped) => {
                let _ = self.outcome.set(outcome);
                Err(RunError::Stopped)
            }
            // An event that was not stored does not escalate.
            Err(error) => Err(error),
        }
    }
}
