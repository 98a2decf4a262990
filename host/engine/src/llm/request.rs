//! Builds the request of a model call.

use std::sync::Arc;

use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentKind, IncludeContents, LlmRequest, Model, ModelCapabilities, ResponseGrouping, RunError};

use super::{LoopDriver, code, examples, planning, static_instruction, transfer};
use crate::history::contents::{CodeMarkers, PromptView};
use crate::instructions;

/// Returns the model and the request of the next model call.
pub(super) async fn build(driver: &LoopDriver<'_>) -> Result<(Arc<dyn Model>, LlmRequest), RunError> {
    let LoopDriver { run, id, llm, cx, tools, replay: _ } = driver;
    let agent = run.agent(*id);
    let (name, model) = run.resolve_model(*id, &cx.call)?;
    let mut request = LlmRequest {
        model: name,
        config: llm.generate_content_config.clone(),
        capabilities: model.capabilities(),
        ..LlmRequest::default()
    };
    // A live model would answer contents in the user's role.
    let is_live = driver.live_input().is_some();
    let files = static_instruction::add(&llm.static_instruction, !is_live, &mut request.system_instructions);
    if let AgentKind::Llm(root) = &run.app.root().kind {
        let text = instructions::text(&root.global_instruction, root.capabilities.as_ref(), &cx.call).await?;
        request.system_instructions.extend(text);
    }
    let text = instructions::text(&llm.instruction, llm.capabilities.as_ref(), &cx.call).await?;
    let is_in_contents = !llm.static_instruction.is_empty() && !is_live;
    let (own, of_turn) = if is_in_contents { (None, text) } else { (text, None) };
    request.system_instructions.extend(own);
    request.system_instructions.push(instructions::identity(agent));
    request.system_instructions.extend(transfer::instruction(run, *id, llm));
    request.system_instructions.extend(examples::instruction(llm.examples.as_ref(), &cx.call).await?);
    let turn_len = add_contents(driver, &mut request);
    planning::prepare(llm.planner.as_ref(), turn_len, &mut request);
    static_instruction::insert(of_turn.as_deref(), files, turn_len, &mut request.contents);
    driver.prepare_code(&mut request).await?;
    for tool in tools {
        tool.prepare(&mut request, &cx.call).await?;
    }
    Ok((model, request))
}

/// Adds the conversation as the agent sees it. Returns the number of contents at the end that belong to the current
/// turn.
fn add_contents(driver: &LoopDriver<'_>, request: &mut LlmRequest) -> usize {
    driver.run.compact_before_model_call();
    let (turn_len, contents) = with_view(driver, request.capabilities, |view| {
        let turn = view.current_turn();
        match driver.llm.include_contents {
            IncludeContents::Default => (turn.len(), view.contents()),
            IncludeContents::None => (turn.len(), turn),
        }
    });
    request.contents = contents;
    turn_len
}

/// Updates the agent's view of the session for a model with these capabilities, and passes it to `read`. The view is
/// kept between model calls and between turns, so only new events are processed.
pub(super) fn with_view<T>(
    driver: &LoopDriver<'_>,
    model: ModelCapabilities,
    read: impl FnOnce(&PromptView) -> T,
) -> T {
    let call = &driver.cx.call;
    let events = call.invocation.events();
    let mut views = driver.run.views.lock_unpoisoned();
    let grouping = match call.invocation.run_config.group_function_responses {
        Some(true) => ResponseGrouping::Batched,
        Some(false) => ResponseGrouping::PerCall,
        None => model.response_grouping,
    };
    let view = views.view(&call.agent, &call.branch, grouping);
    view.rewrite_with(code::on_host(driver.llm).map(CodeMarkers::new));
    view.read(&events);
    read(view)
}
