//! Property tests of the agent loop and the aggregator.

use std::mem::discriminant;
use std::sync::Arc;

use hatchery_core::{
    Aggregator, Content, Event, EventData, FunctionCall, FunctionResponse, LlmResponse, Part, PartData,
};
use hatchery_engine::llm::agent_loop::{AgentLoop, AgentLoopSettings, LoopAction};
use proptest::prelude::*;

/// A response of a model.
#[derive(Debug, Clone)]
enum Answer {
    Text,
    Calls,
    Error,
    Nothing,
    /// Code that the model has executed itself, with the result.
    CodeResult,
    /// Code for the host.
    Code,
}

/// The responses of tools.
#[derive(Debug, Clone)]
enum Results {
    Plain,
    Pending,
    Transfer,
    SkipSummary,
    TakesAnswer,
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Text),
        Just(Answer::Calls),
        Just(Answer::Error),
        Just(Answer::Nothing),
        Just(Answer::CodeResult),
        Just(Answer::Code),
    ]
}

fn results() -> impl Strategy<Value = Results> {
    prop_oneof![
        Just(Results::Plain),
        Just(Results::Pending),
        Just(Results::Transfer),
        Just(Results::SkipSummary),
        Just(Results::TakesAnswer)
    ]
}

fn event_of(parts: Vec<Part>) -> EventData {
    EventData { content: Some(Arc::new(Content::new("model", parts))), ..EventData::default() }
}

fn model_event(answer: &Answer) -> Arc<Event> {
    let call = || PartData::FunctionCall(FunctionCall { name: "t".into(), ..FunctionCall::default() }).into();
    Event::new(match answer {
        Answer::Text => event_of(vec![Part::text("hello")]),
        Answer::Calls => event_of(vec![call(), call()]),
        Answer::Error => EventData { error_code: Some("MAX_TOKENS".into()), ..event_of(vec![call()]) },
        Answer::Nothing => EventData::default(),
        Answer::Code => event_of(vec![Part::text("So:"), PartData::ExecutableCode(Default::default()).into()]),
        Answer::CodeResult => event_of(vec![PartData::CodeExecutionResult(Default::default()).into()]),
    })
}

/// The response of the tool that takes the agent's answer.
fn answer_response() -> Part {
    let response = serde_json::json!({"result": {"n": 42}}).as_object().cloned().unwrap();
    let name = "set_model_response".into();
    PartData::FunctionResponse(FunctionResponse { name, response, ..FunctionResponse::default() }).into()
}

fn tool_event(results: &Results) -> Option<Arc<Event>> {
    let mut data = event_of(vec![PartData::FunctionResponse(Default::default()).into()]);
    match results {
        Results::Pending => return None,
        Results::Plain => {}
        Results::Transfer => data.actions.transfer_to_agent = Some("other".into()),
        Results::SkipSummary => data.actions.skip_summarization = Some(true),
        Results::TakesAnswer => data = event_of(vec![answer_response()]),
    }
    Some(Event::new(data))
}

/// Returns the event as it is read from a store.
fn stored(event: &Arc<Event>) -> Arc<Event> {
    Event::from_json(event.json().clone()).unwrap()
}

/// The result of code.
fn code_event(results: &Results) -> Arc<Event> {
    let mut data = event_of(vec![PartData::CodeExecutionResult(Default::default()).into()]);
    match results {
        Results::Plain => {}
        Results::Pending | Results::Transfer => data.actions.end_of_agent = Some(true),
        Results::SkipSummary | Results::TakesAnswer => data.error_code = Some("CODE_FAILED".into()),
    }
    Event::new(data)
}

proptest! {
    #[test]
    fn a_run_alternates_between_model_and_tools_within_its_limit(
        answers in prop::collection::vec((answer(), results()), 1..40),
        max_steps in prop::option::of(0..10u32),
        can_pause in any::<bool>(),
        can_run_code in any::<bool>(),
    ) {
        let settings = AgentLoopSettings { max_steps, can_pause, can_run_code, can_answer_by_tool: true };
        let mut agent_loop = AgentLoop::new(settings);
        // Records the events as they are read from a store, and reaches the same states.
        let mut resumed = AgentLoop::new(settings);
        let mut calls = 0;
        for (answer, results) in &answers {
            match agent_loop.next_action() {
                LoopAction::CallModel => {
                    calls += 1;
                    prop_assert!(max_steps.is_none_or(|most| calls <= most));
                    let event = model_event(answer);
                    resumed.record_model_event(stored(&event));
                    agent_loop.record_model_event(event);
                }
                LoopAction::LimitReached(most) => {
                    prop_assert_eq!(Some(most), max_steps);
                    prop_assert_eq!(calls, most);
                    break;
                }
                LoopAction::Done | LoopAction::Transfer(_) | LoopAction::Pause(_) => break,
                LoopAction::CallTools(_) | LoopAction::CallAnswered(_) | LoopAction::RunCode(_) | LoopAction::EmitAnswer(_) => {
                    prop_assert!(false, "tools and code run only after the model has asked for them");
                }
            }
            let calls_model = |agent_loop: &AgentLoop| matches!(agent_loop.next_action(), LoopAction::CallModel | LoopAction::LimitReached(_));
            prop_assert_eq!(discriminant(&resumed.next_action()), discriminant(&agent_loop.next_action()));
            match agent_loop.next_action() {
                LoopAction::CallTools(event) => {
                    prop_assert!(matches!(answer, Answer::Calls));
                    prop_assert_eq!(event.function_calls().count(), 2);
                    let later = matches!(results, Results::Pending);
                    let pending = || if later { vec!["c1".into()] } else { Vec::new() };
                    let event = tool_event(results);
                    resumed.record_tool_event(event.as_ref().map(stored), pending());
                    agent_loop.record_tool_event(event, pending());
                    prop_assert_eq!(matches!(agent_loop.next_action(), LoopAction::Pause(_)), can_pause && later);
                    prop_assert_eq!(calls_model(&agent_loop), matches!(results, Results::Plain));
                    if let LoopAction::EmitAnswer(answer) = agent_loop.next_action() {
                        prop_assert!(matches!(results, Results::TakesAnswer));
                        let event = Event::new(event_of(vec![Part::text(answer)]));
                        resumed.record_model_event(stored(&event));
                        agent_loop.record_model_event(event);
                        prop_assert!(matches!(agent_loop.next_action(), LoopAction::Done));
                    }
                }
                LoopAction::RunCode(event) => {
                    prop_assert!(can_run_code && matches!(answer, Answer::Code));
                    prop_assert_eq!(event.content.as_ref().map(|content| content.parts.len()), Some(2));
                    let event = code_event(results);
                    resumed.record_code_event(&stored(&event));
                    agent_loop.record_code_event(&event);
                    prop_assert_eq!(calls_model(&agent_loop), matches!(results, Results::Plain));
                }
                _ => {
                    prop_assert!(!can_run_code || !matches!(answer, Answer::Code), "the code is run");
                    prop_assert_eq!(calls_model(&agent_loop), matches!(answer, Answer::CodeResult));
                }
            }
            prop_assert_eq!(discriminant(&resumed.next_action()), discriminant(&agent_loop.next_action()));
        }
    }

    #[test]
    fn the_chunks_of_a_response_add_up_to_it(chunks in prop::collection::vec((any::<bool>(), "[a-z ]{0,6}"), 0..12)) {
        let mut aggregator = Aggregator::default();
        for (thought, text) in &chunks {
            let part = Part { thought: *thought, ..Part::text(text.as_str()) };
            aggregator.push(LlmResponse {
                content: Some(Content::new("model", vec![part])),
                partial: true,
                ..LlmResponse::default()
            });
        }
        let response = aggregator.finish();
        prop_assert_eq!(response.is_none(), chunks.is_empty());
        let parts = response.and_then(|response| response.content).map(|content| content.parts).unwrap_or_default();
        for is_thought in [true, false] {
            let chunks: String = chunks.iter().filter(|(it, _)| *it == is_thought).map(|(_, text)| text.as_str()).collect();
            let joined: String = parts.iter().filter(|part| part.thought == is_thought).filter_map(Part::as_text).collect();
            prop_assert_eq!(chunks, joined);
        }
        let alternates = parts.windows(2).all(|pair| pair[0].thought != pair[1].thought);
        let has_empty_chunk = chunks.iter().any(|(_, text)| text.is_empty());
        prop_assert!(alternates || has_empty_chunk, "adjacent parts are joined: {:?}", parts);
    }
}

#[test]
fn only_an_agent_with_an_output_schema_answers_by_a_tool_call() {
    let answers = |by_tool| {
        let mut agent_loop =
            AgentLoop::new(AgentLoopSettings { can_answer_by_tool: by_tool, ..AgentLoopSettings::default() });
        agent_loop.record_model_event(model_event(&Answer::Calls));
        agent_loop.record_tool_event(tool_event(&Results::TakesAnswer), Vec::new());
        agent_loop.next_action()
    };
    assert!(matches!(answers(true), LoopAction::EmitAnswer(answer) if answer == "{\"n\":42}"));
    assert!(matches!(answers(false), LoopAction::CallModel));
}
