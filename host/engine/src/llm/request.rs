//! Builds what a model is asked.

use std::sync::{Arc, PoisonError};

use hatchery_core::agent::IncludeContents;
use hatchery_core::{AgentKind, LlmRequest, Model, RunError};

use super::contents::{Grouping, View};
use super::{Step, code, examples, instructions, planning, transfer};
use crate::agents::resolve_model;
use crate::compaction;

/// The model and the request for the next step.
pub(super) async fn build(step: &Step<'_>) -> Result<(Arc<dyn Model>, LlmRequest), RunError> {
    let Step { frame, id, llm, cx, tools, past: _ } = step;
    let agent = frame.agent(*id);
    let (name, model) = resolve_model(frame, *id, &cx.call)?;
    let mut request = LlmRequest { model: name, config: llm.generate_content_config.clone(), ..LlmRequest::default() };
    if let AgentKind::Llm(root) = &frame.app.root().kind {
        request.system_instructions.extend(instructions::text(&root.global_instruction, &cx.call).await?);
    }
    request.system_instructions.extend(instructions::text(&llm.instruction, &cx.call).await?);
    request.system_instructions.push(instructions::identity(agent));
    request.system_instructions.extend(transfer::instruction(frame, *id, llm));
    request.system_instructions.extend(examples::instruction(llm.examples.as_ref(), &cx.call).await?);
    request.contents = contents(step, &request.model);
    planning::prepare(llm.planner.as_ref(), &mut request);
    for tool in tools {
        tool.prepare(&mut request, &cx.call).await?;
    }
    step.prepare_code(&mut request).await?;
    Ok((model, request))
}

/// The conversation as the agent sees it.
fn contents(step: &Step<'_>, model: &str) -> imbl::Vector<Arc<hatchery_core::Content>> {
    compaction::before_model_call(step.frame);
    with_view(step, model, |view| match step.llm.include_contents {
        IncludeContents::Default => view.contents(),
        IncludeContents::None => view.current_turn(),
    })
}

/// Looks at the agent's view of the session, as `model` wants it. It is kept from call to call and from turn to turn, and reads only
/// events that are new.
pub(super) fn with_view<T>(step: &Step<'_>, model: &str, look: impl FnOnce(&View) -> T) -> T {
    let call = &step.cx.call;
    let events = call.invocation.events();
    let mut views = step.frame.views.lock().unwrap_or_else(PoisonError::into_inner);
    let grouping = Grouping::of(call.invocation.run_config.group_function_responses, model);
    let view = views.view(&call.agent, &call.branch, grouping);
    view.reword(code::Wording::of(step.llm));
    view.read(&events);
    look(view)
}
