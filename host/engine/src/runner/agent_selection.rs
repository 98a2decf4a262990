//! Selects the agent that continues a session.

use std::sync::Arc;

use hatchery_core::{AgentId, AgentKind, AgentTree, Claim, Event, USER_AUTHOR};
use imbl::Vector;

use crate::provenance::Verifier;
use crate::run::Branch;

/// Returns the agent that answers the newest event, which is the user's message, and its branch:
///
/// 1. the agent whose function call the message responds to;
/// 2. the agent of the last event, if an agent transferred to it and the conversation can come back to the root from
///    it;
/// 3. the root.
///
/// Calls and transfers count only with a proof that they come from this host.
pub(super) fn agent_to_run(
    tree: &AgentTree,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
) -> (AgentId, Branch) {
    if let Some(caller) = caller_of_newest_response(tree, events, verifier) {
        return caller;
    }
    let root = tree.root();
    if !matches!(tree.agent(root).kind, AgentKind::Llm(_)) {
        return (root, None);
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
    let agent = if last_author == root || was_transferred_to() { last_author } else { root };
    (agent, None)
}

/// Returns the agent whose function call the newest event responds to, and the branch of the call.
fn caller_of_newest_response(
    tree: &AgentTree,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
) -> Option<(AgentId, Branch)> {
    let mut earlier = events.iter().rev();
    let newest = earlier.next()?;
    let response_ids: Vec<_> = newest.function_responses().filter_map(|response| response.id.as_deref()).collect();
    if response_ids.is_empty() {
        return None;
    }
    let is_call = |event: &&Arc<Event>| {
        event.author != USER_AUTHOR
            && event.function_calls().any(|call| call.id.as_deref().is_some_and(|id| response_ids.contains(&id)))
            && verifier.proves_open_calls(event)
    };
    let call = earlier.find(is_call)?;
    Some((tree.find_agent(&call.author)?, call.branch.as_deref().map(Into::into)))
}

/// Returns true if the agent and all agents between it and the root are LLM agents that may transfer to their parents.
fn can_return_to_root(tree: &AgentTree, agent: AgentId) -> bool {
    std::iter::once(agent).chain(tree.ancestors(agent)).all(|id| match &tree.agent(id).kind {
        AgentKind::Llm(llm) => id == tree.root() || !llm.disallow_transfer_to_parent,
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => false,
    })
}
