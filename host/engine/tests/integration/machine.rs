//! The run machine and the aggregator: properties that hold whatever models and tools do.

use std::mem::discriminant;
use std::sync::Arc;

use hatchery_core::{Content, Event, EventData, FunctionCall, FunctionResponse, LlmResponse, Part, PartData};
use hatchery_engine::llm::Aggregator;
use hatchery_engine::llm::machine::{Machine, Next, Settings};
use proptest::prelude::*;

/// What a model answers.
#[derive(Debug, Clone)]
enum Answer {
    Text,
    Calls,
    Error,
    Nothing,
    /// Code of its own, with the result.
    CodeResult,
    /// Code for the host.
    Code,
}

/// What the tools answer.
#[derive(Debug, Clone)]
enum Results {
    Plain,
    Later,
    HandOver,
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
        Just(Results::Later),
        Just(Results::HandOver),
        Just(Results::SkipSummary),
        Just(Results::TakesAnswer)
    ]
}

fn event_of(parts: Vec<Part>) -> EventData {
    EventData { content: Some(Arc::new(Content::new("model", parts))), ..EventData::default() }
}

fn said(answer: &Answer) -> Arc<Event> {
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

/// The answer of the tool that takes an agent's answer.
fn taken() -> Part {
    let response = serde_json::json!({"result": {"n": 42}}).as_object().cloned().unwrap();
    let name = "set_model_response".into();
    PartData::FunctionResponse(FunctionResponse { name, response, ..FunctionResponse::default() }).into()
}

fn answered(results: &Results) -> Option<Arc<Event>> {
    let mut data = event_of(vec![PartData::FunctionResponse(Default::default()).into()]);
    match results {
        Results::Later => return None,
        Results::Plain => {}
        Results::HandOver => data.actions.transfer_to_agent = Some("other".into()),
        Results::SkipSummary => data.actions.skip_summarization = Some(true),
        Results::TakesAnswer => data = event_of(vec![taken()]),
    }
    Some(Event::new(data))
}

/// An event as a store gives it back.
fn stored(event: &Arc<Event>) -> Arc<Event> {
    Event::from_json(event.json().clone()).unwrap()
}

/// What running code gave.
fn ran(results: &Results) -> Arc<Event> {
    let mut data = event_of(vec![PartData::CodeExecutionResult(Default::default()).into()]);
    match results {
        Results::Plain => {}
        Results::Later | Results::HandOver => data.actions.end_of_agent = Some(true),
        Results::SkipSummary | Results::TakesAnswer => data.error_code = Some("CODE_FAILED".into()),
    }
    Event::new(data)
}

proptest! {
    #[test]
    fn a_run_alternates_between_model_and_tools_and_keeps_to_its_limit(
        answers in prop::collection::vec((answer(), results()), 1..40),
        max_steps in prop::option::of(0..10u32),
        pauses in any::<bool>(),
        runs_code in any::<bool>(),
    ) {
        let settings = Settings { max_steps, pauses, runs_code, answers_by_tool: true };
        let mut machine = Machine::new(settings);
        // Fed with what a store gives back, it gets to the same places.
        let mut resumed = Machine::new(settings);
        let mut calls = 0;
        for (answer, results) in &answers {
            match machine.next() {
                Next::CallModel => {
                    calls += 1;
                    prop_assert!(max_steps.is_none_or(|most| calls <= most));
                    let said = said(answer);
                    resumed.model_answered(stored(&said));
                    machine.model_answered(said);
                }
                Next::LimitReached(most) => {
                    prop_assert_eq!(Some(most), max_steps);
                    prop_assert_eq!(calls, most);
                    break;
                }
                Next::Done | Next::Transfer(_) | Next::Pause(_) => break,
                Next::CallTools(_) | Next::CallDecided(_) | Next::RunCode(_) | Next::Answer(_) => {
                    prop_assert!(false, "tools and code are due only after the model has asked for them");
                }
            }
            let goes_on = |machine: &Machine| matches!(machine.next(), Next::CallModel | Next::LimitReached(_));
            prop_assert_eq!(discriminant(&resumed.next()), discriminant(&machine.next()));
            match machine.next() {
                Next::CallTools(event) => {
                    prop_assert!(matches!(answer, Answer::Calls));
                    prop_assert_eq!(event.function_calls().count(), 2);
                    let later = matches!(results, Results::Later);
                    let pending = || if later { vec!["c1".into()] } else { Vec::new() };
                    let answered = answered(results);
                    resumed.tools_answered(answered.as_ref().map(stored), pending());
                    machine.tools_answered(answered, pending());
                    prop_assert_eq!(matches!(machine.next(), Next::Pause(_)), pauses && later);
                    prop_assert_eq!(goes_on(&machine), matches!(results, Results::Plain));
                    if let Next::Answer(answer) = machine.next() {
                        prop_assert!(matches!(results, Results::TakesAnswer));
                        let said = Event::new(event_of(vec![Part::text(answer)]));
                        resumed.model_answered(stored(&said));
                        machine.model_answered(said);
                        prop_assert!(matches!(machine.next(), Next::Done));
                    }
                }
                Next::RunCode(event) => {
                    prop_assert!(runs_code && matches!(answer, Answer::Code));
                    prop_assert_eq!(event.content.as_ref().map(|content| content.parts.len()), Some(2));
                    let ran = ran(results);
                    resumed.code_answered(&stored(&ran));
                    machine.code_answered(&ran);
                    prop_assert_eq!(goes_on(&machine), matches!(results, Results::Plain));
                }
                _ => {
                    prop_assert!(!runs_code || !matches!(answer, Answer::Code), "code does not wait");
                    prop_assert_eq!(goes_on(&machine), matches!(answer, Answer::CodeResult));
                }
            }
            prop_assert_eq!(discriminant(&resumed.next()), discriminant(&machine.next()));
        }
    }

    #[test]
    fn the_pieces_of_an_answer_add_up_to_it(pieces in prop::collection::vec((any::<bool>(), "[a-z ]{0,6}"), 0..12)) {
        let mut whole = Aggregator::default();
        for (thought, text) in &pieces {
            let part = Part { thought: *thought, ..Part::text(text.as_str()) };
            whole.push(LlmResponse {
                content: Some(Content::new("model", vec![part])),
                partial: true,
                ..LlmResponse::default()
            });
        }
        let whole = whole.finish();
        prop_assert_eq!(whole.is_none(), pieces.is_empty());
        let parts = whole.and_then(|whole| whole.content).map(|content| content.parts).unwrap_or_default();
        for wanted in [true, false] {
            let pieces: String = pieces.iter().filter(|(it, _)| *it == wanted).map(|(_, text)| text.as_str()).collect();
            let whole: String = parts.iter().filter(|part| part.thought == wanted).filter_map(Part::as_text).collect();
            prop_assert_eq!(pieces, whole);
        }
        let alternates = parts.windows(2).all(|pair| pair[0].thought != pair[1].thought);
        let has_empty_run = pieces.iter().any(|(_, text)| text.is_empty());
        prop_assert!(alternates || has_empty_run, "runs are joined: {:?}", parts);
    }
}

#[test]
fn only_an_agent_with_an_output_schema_has_an_answer_taken() {
    let answers = |by_tool| {
        let mut machine = Machine::new(Settings { answers_by_tool: by_tool, ..Settings::default() });
        machine.model_answered(said(&Answer::Calls));
        machine.tools_answered(answered(&Results::TakesAnswer), Vec::new());
        machine.next()
    };
    assert!(matches!(answers(true), Next::Answer(answer) if answer == "{\"n\":42}"));
    assert!(matches!(answers(false), Next::CallModel));
}
