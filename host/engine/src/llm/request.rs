//! Builds what a model is asked.

use std::sync::Arc;

use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentKind, IncludeContents, LlmRequest, Model, ModelCapabilities, ResponseGrouping, RunError};

use super::{Step, code, examples, instructions, planning, transfer};
use crate::agents::resolve_model;
use crate::history::compaction;
use crate::history::contents::PromptView;

/// The model and the request for the next step.
pub(super) async fn build(step: &Step<'_>) -> Result<(Arc<dyn Model>, LlmRequest), RunError> {
    let Step { frame, id, llm, cx, tools, past: _ } = step;
    let agent = frame.agent(*id);
    let (name, model) = resolve_model(frame, *id, &cx.call)?;
    let mut request = LlmRequest {
        model: name,
        config: llm.generate_content_config.clone(),
        capabilities: model.capabilities(),
        ..LlmRequest::default()
    };
    if let AgentKind::Llm(root) = &frame.app.root().kind {
        let text = instructions::text(&root.global_instruction, root.capabilities.as_ref(), &cx.call).await?;
        request.system_instructions.extend(text);
    }
    let text = instructions::text(&llm.instruction, llm.capabilities.as_ref(), &cx.call).await?;
    request.system_instructions.extend(text);
    request.system_instructions.push(instructions::identity(agent));
    request.system_instructions.extend(transfer::instruction(frame, *id, llm));
    request.system_instructions.extend(examples::instruction(llm.examples.as_ref(), &cx.call).await?);
    let turn = contents(step, &mut request);
    planning::prepare(llm.planner.as_ref(), turn, &mut request);
    step.prepare_code(&mut request).await?;
    for tool in tools {
        tool.prepare(&mut request, &cx.call).await?;
    }
    Ok((model, request))
}

/// Puts the conversation as the agent sees it into the request. Gives how many of its last contents are the current turn.
fn contents(step: &Step<'_>, request: &mut LlmRequest) -> usize {
    compaction::before_model_call(step.frame);
    let (turn, contents) = with_view(step, request.capabilities, |view| {
        let turn = view.current_turn();
        match step.llm.include_contents {
            IncludeContents::Default => (turn.len(), view.contents()),
            IncludeContents::None => (turn.len(), turn),
        }
    });
    request.contents = contents;
    turn
}

/// Calls `look` with the agent's view of the session for a model with these capabilities. The view is cached between calls and turns, and
/// reads only new events.
pub(super) fn with_view<T>(step: &Step<'_>, model: ModelCapabilities, look: impl FnOnce(&PromptView) -> T) -> T {
    let call = &step.cx.call;
    let events = call.invocation.events();
    let mut views = step.frame.views.lock_unpoisoned();
    let grouping = match call.invocation.run_config.group_function_responses {
        Some(true) => ResponseGrouping::Batched,
        Some(false) => ResponseGrouping::PerCall,
        None => model.response_grouping,
    };
    let view = views.view(&call.agent, &call.branch, grouping);
    view.rewrite_with(code::CodeMarkers::of(step.llm));
    view.read(&events);
    look(view)
}
