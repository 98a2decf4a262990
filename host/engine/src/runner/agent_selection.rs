//! Selects the agents that continue a session.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{AgentId, AgentKind, AgentTree, Claim, Event, USER_AUTHOR};
use imbl::Vector;

use crate::provenance::Verifier;
use crate::run::Branch;

/// Returns the agents that answer the newest event, which is the user's message, each with its branch:
///
/// 1. the agents whose function calls the message responds to, in the order of the calls;
/// 2. the agent of the last event, if an agent transferred to it and the conversation can come back to the root from
///    it;
/// 3. the root.
///
/// Calls and transfers count only with a proof that they come from this host.
pub(super) fn agents_to_run(
    tree: &AgentTree,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
) -> Vec<(AgentId, Branch)> {
    let callers = callers_of_newest_response(tree, events, verifier);
    if callers.is_empty() { vec![(last_agent(tree, events, verifier), None)] } else { callers }
}

/// Returns the agent of the last event if it may continue, else the root.
fn last_agent(tree: &AgentTree, events: &Vector<Arc<Event>>, verifier: &Verifier<'_>) -> AgentId {
    let root = tree.root();
    if !matches!(tree.agent(root).kind, AgentKind::Llm(_)) {
        return root;
    }
    let can_continue = |agent: &AgentId| *agent == root || can_return_to_root(tree, *agent);
    let mut authors = events.iter().rev().filter(|event| event.author != USER_AUTHOR);
    let last_author = authors.find_map(|event| tree.find_agent(&event.author).filter(can_continue)).unwrap_or(root);
    let was_transferred_to = || {
        let mut transfers = events.iter().rev().filter_map(|event| {
            let target = tree.find_agent(event.actions.transfer_to_agent.as_deref()?).filter(can_continue)?;
            verifier.proves(event, Claim::Transfer).then(|| (tree.find_agent(&event.author), target))
        });
        // The source of the transfer counts too: its target may have been cancelled before its first event.
        transfers.next().is_some_and(|(from, target)| target == last_author || from == Some(last_author))
    };
    if last_author == root || was_transferred_to() { last_author } else { root }
}

/// Returns the agents whose function calls the newest event responds to, with the branches of the calls. Of several
/// calls with one id, the newest counts.
fn callers_of_newest_response(
    tree: &AgentTree,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
) -> Vec<(AgentId, Branch)> {
    let mut earlier = events.iter().rev();
    let Some(newest) = earlier.next() else { return Vec::new() };
    let mut open: HashSet<_> = newest.function_responses().filter_map(|response| response.id.as_deref()).collect();
    let mut callers = Vec::new();
    for event in earlier {
        if open.is_empty() {
            break;
        }
        let mut ids = event.function_calls().filter_map(|call| call.id.as_deref());
        if event.author == USER_AUTHOR || !ids.any(|id| open.contains(id)) || !verifier.proves_open_calls(event) {
            continue;
        }
        event.function_calls().filter_map(|call| call.id.as_deref()).for_each(|id| {
            open.remove(id);
        });
        let caller = tree.find_agent(&event.author).map(|agent| (agent, event.branch.as_deref().map(Into::into)));
        callers.extend(caller.filter(|caller| !callers.contains(caller)));
    }
    callers.reverse();
    callers
}

/// Returns true if the agent and all agents between it and the root are LLM agents that may transfer to their parents.
fn can_return_to_root(tree: &AgentTree, agent: AgentId) -> bool {
    std::iter::once(agent).chain(tree.ancestors(agent)).all(|id| match &tree.agent(id).kind {
        AgentKind::Llm(llm) => id == tree.root() || !llm.disallow_transfer_to_parent,
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => false,
    })
}
