//! Sequential, parallel and loop agents.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use hatchery_core::{AgentId, AgentKind, Event, EventSink, RunError};
use tokio::task::JoinSet;

use super::{Branch, Frame, Lane, Outcome, run};
use crate::tasks::joined;

/// Runs the sub agents in order.
pub(super) async fn sequential(frame: &Arc<Frame>, id: AgentId, lane: Lane) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::Done;
    for sub_agent in frame.app.tree.children(id) {
        outcome = run(frame.clone(), *sub_agent, lane.clone()).await?;
        if outcome == Outcome::Paused {
            break;
        }
    }
    Ok(outcome)
}

/// Runs the sub agents in order, round after round, until one escalates or the rounds are used up.
pub(super) async fn repeat(
    frame: &Arc<Frame>,
    id: AgentId,
    max_iterations: Option<u32>,
    lane: Lane,
) -> Result<Outcome, RunError> {
    let sub_agents = frame.app.tree.children(id);
    let mut round = 0;
    while !sub_agents.is_empty() && max_iterations.is_none_or(|most| round < most) {
        for sub_agent in sub_agents {
            let exit = ExitOnEscalate::around(lane.sink.clone());
            let outcome = run(frame.clone(), *sub_agent, Lane { sink: exit.clone(), ..lane.clone() }).await;
            if let Some(outcome) = exit.outcome() {
                return Ok(outcome);
            }
            if outcome? == Outcome::Paused {
                return Ok(Outcome::Paused);
            }
        }
        round += 1;
        // Rounds of agents that never wait must not keep the run from being cancelled.
        tokio::task::yield_now().await;
    }
    Ok(Outcome::Done)
}

/// Runs the sub agents at the same time, each in a task and a branch of its own. A sub agent goes on only after its event has been stored
/// and taken by the client's queue, so a slow client slows all of them down. The first failure or escalation ends the others; one that
/// pauses does not.
pub(super) async fn parallel(frame: &Arc<Frame>, id: AgentId, lane: Lane) -> Result<Outcome, RunError> {
    let exit = ExitOnEscalate::around(lane.sink.clone());
    let children = frame.app.tree.children(id);
    let branch = |child: &AgentId| branch_of(&lane.branch, &frame.agent(id).name, &frame.agent(*child).name);
    let names: Vec<Arc<str>> = children.iter().map(branch).collect();
    let strands = lane.past.split(&names, |event| is_code_around(frame, id, event));
    let mut branches = JoinSet::new();
    for ((sub_agent, branch), past) in children.iter().zip(names).zip(&strands) {
        let lane = Lane { branch: Some(branch), past: past.clone(), sink: exit.clone() };
        branches.spawn(run(frame.clone(), *sub_agent, lane));
    }
    let (mut result, mut is_over) = (Ok(Outcome::Done), false);
    while let Some(ended) = branches.join_next().await {
        result = match (joined(ended), result) {
            (Err(RunError::Stopped), result) if strands.iter().any(|strand| strand.is_closed()) => {
                is_over = true;
                result
            }
            (Ok(Outcome::Paused), _) | (Ok(_), Ok(Outcome::Paused)) => Ok(Outcome::Paused),
            (Ok(Outcome::Done | Outcome::HandedBack), _) => Ok(Outcome::Done),
            (Err(error), _) => Err(error),
        };
        if exit.outcome().is_some() || result.is_err() {
            break;
        }
    }
    // Until the others have really stopped, they might still say something.
    branches.shutdown().await;
    lane.past.join(&strands);
    match exit.outcome() {
        Some(outcome) => Ok(outcome),
        None if is_over => lane.past.check_failure(&frame.agent(id).name).and(result),
        None => result,
    }
}

/// True for what code around the agent says: it may come between the events of the agent's branches.
fn is_code_around(frame: &Frame, id: AgentId, event: &Event) -> bool {
    let tree = &frame.app.tree;
    tree.find_agent(&event.author).is_some_and(|author| {
        matches!(tree.agent(author).kind, AgentKind::Custom(_)) && tree.ancestors(id).any(|above| above == author)
    })
}

/// `outer.parallel.sub`: each parallel agent adds its name and that of the sub agent once, however deep it is nested.
fn branch_of(outer: &Branch, parallel: &str, sub_agent: &str) -> Arc<str> {
    let parent = outer.as_deref().filter(|outer| outer.rsplit('.').next() == Some(parallel));
    match (outer, parent) {
        (None, _) => format!("{parallel}.{sub_agent}").into(),
        (Some(_), Some(outer)) => format!("{outer}.{sub_agent}").into(),
        (Some(outer), None) => format!("{outer}.{parallel}.{sub_agent}").into(),
    }
}

/// Passes events on until one escalates; from then on the agents inside are told to stop.
struct ExitOnEscalate {
    outer: Arc<dyn EventSink>,
    /// How the agent around ends, once an event has escalated.
    ended: OnceLock<Outcome>,
}

impl ExitOnEscalate {
    fn around(outer: Arc<dyn EventSink>) -> Arc<Self> {
        Arc::new(Self { outer, ended: OnceLock::new() })
    }

    fn outcome(&self) -> Option<Outcome> {
        self.ended.get().copied()
    }
}

#[async_trait]
impl EventSink for ExitOnEscalate {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        if self.outcome().is_some() {
            return Err(RunError::Stopped);
        }
        if event.partial || event.actions.escalate != Some(true) {
            return self.outer.emit(event).await;
        }
        let outcome = if event.is_final_response() { Outcome::Done } else { Outcome::HandedBack };
        match self.outer.emit(event).await {
            // Also when the outer loop has ended with it.
            Ok(_) | Err(RunError::Stopped) => {
                let _ = self.ended.set(outcome);
                Err(RunError::Stopped)
            }
            // What could not be stored has not been said.
            Err(error) => Err(error),
        }
    }
}
