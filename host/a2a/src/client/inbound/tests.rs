//! Tests of the conversion of updates.

use super::*;
use crate::model::StatusUpdate;

fn inbound() -> AnswerConverter {
    AnswerConverter::new(std::iter::empty(), usize::MAX)
}

fn received(message: Update) -> ReceivedMessage<Update> {
    ReceivedMessage { message, bytes: 1 }
}

fn chunk(text: &str, append: bool, last_chunk: bool) -> Update {
    let artifact = Artifact { id: "a".into(), parts: vec![Part::text(text)], ..Artifact::default() };
    Update::Artifact(ArtifactUpdate {
        task_id: "t".into(),
        context_id: "c".into(),
        artifact,
        append,
        last_chunk,
        ..ArtifactUpdate::default()
    })
}

fn status(state: TaskState, parts: Vec<Part>) -> Update {
    let message = (!parts.is_empty()).then(|| Message { parts, ..Message::default() });
    let status = TaskStatus { state, message, timestamp: None };
    Update::Status(StatusUpdate { task_id: "t".into(), context_id: "c".into(), status, ..StatusUpdate::default() })
}

/// Returns the texts of events, with `…` after the texts of partial events.
fn texts(events: &[EventData]) -> Vec<String> {
    let text = |event: &EventData| event.content.as_ref().map(|content| content.text()).unwrap_or_default();
    events.iter().map(|event| text(event) + if event.partial { "…" } else { "" }).collect()
}

#[test]
fn chunks_are_partial_and_their_sum_is_an_event_with_the_same_id() {
    let mut inbound = inbound();
    let first = inbound.accept(received(chunk("Hello ", false, false))).unwrap();
    let second = inbound.accept(received(chunk("World!", true, false))).unwrap();
    let end = inbound.accept(received(status(TaskState::Completed, Vec::new()))).unwrap();
    assert_eq!(
        (texts(&first), texts(&second), texts(&end)),
        (vec!["Hello …".into()], vec!["World!…".into()], vec!["Hello World!".into()])
    );
    assert!(first[0].id == end[0].id && inbound.has_ended() && inbound.finish().is_empty());
}

#[test]
fn a_final_chunk_that_replaces_the_others_is_the_event() {
    let mut inbound = inbound();
    inbound.accept(received(chunk("Hel", false, false))).unwrap();
    let last = inbound.accept(received(chunk("Hello", false, true))).unwrap();
    assert_eq!(texts(&last), ["Hello"]);
    assert!(inbound.accept(received(status(TaskState::Completed, Vec::new()))).unwrap().is_empty());
}

#[test]
fn a_task_at_its_end_has_the_artifacts_that_are_new() {
    let artifact = |id: &str| Artifact { id: id.into(), parts: vec![Part::text(id)], ..Artifact::default() };
    let task = Task {
        id: "t".into(),
        context_id: "c".into(),
        status: TaskStatus { state: TaskState::Completed, ..TaskStatus::default() },
        artifacts: vec![artifact("old"), artifact("new")],
        ..Task::default()
    };
    let mut inbound = AnswerConverter::new(["old"].into_iter(), usize::MAX);
    let events = inbound.accept(received(Update::Task(task))).unwrap();
    assert_eq!(texts(&events), ["new"]);
    let ids = events[0].custom_metadata.as_deref().unwrap();
    assert_eq!(*ids, json!({TASK_ID: "t", CONTEXT_ID: "c", ARTIFACT_ID: "new"}));
}

fn task(text: &str, status: Option<&str>) -> Update {
    let artifact = Artifact { id: "a".into(), parts: vec![Part::text(text)], ..Artifact::default() };
    let message =
        status.map(|status| Message { id: "m".into(), parts: vec![Part::text(status)], ..Message::default() });
    let status = TaskStatus { state: TaskState::Working, message, ..TaskStatus::default() };
    let (id, context_id) = ("t".into(), "c".into());
    Update::Task(Task { id, context_id, status, artifacts: vec![artifact], ..Task::default() })
}

#[test]
fn chunks_that_were_lost_with_their_stream_come_from_the_task() {
    let mut inbound = inbound();
    inbound.accept(received(chunk("Hel", false, false))).unwrap();
    assert!(inbound.accept(received(task("Hello W", None))).unwrap().is_empty());
    inbound.accept(received(chunk("orld!", true, false))).unwrap();
    let end = inbound.accept(received(status(TaskState::Completed, Vec::new()))).unwrap();
    assert_eq!(texts(&end), ["Hello World!"]);
    assert!(inbound.accept(received(task("again", None))).unwrap().is_empty());
    assert!(inbound.finish().is_empty());
}

#[test]
fn the_artifacts_of_tasks_in_progress_count_once() {
    let mut inbound = AnswerConverter::new(std::iter::empty(), 40);
    for length in [10, 20, 30, 20, 30] {
        inbound.accept(ReceivedMessage { message: task(&"x".repeat(length), None), bytes: 90 }).unwrap();
    }
    let error = inbound.accept(ReceivedMessage { message: task(&"x".repeat(50), None), bytes: 90 }).unwrap_err();
    assert_eq!(error, ClientError::TooLarge { what: "answer", limit: 40, key: "max_answer" });
}

#[test]
fn a_status_message_that_is_read_again_is_emitted_once() {
    let mut inbound = inbound();
    let mut emitted = |text| inbound.accept(received(task("a", Some(text)))).unwrap().len();
    assert_eq!([emitted("one"), emitted("one"), emitted("two"), emitted("two")], [1, 0, 1, 0]);
}

#[test]
fn calls_in_artifacts_wait_for_nobody() {
    for last_chunk in [true, false] {
        let artifact = Artifact { id: "a".into(), parts: vec![call()], ..Artifact::default() };
        let update = ArtifactUpdate { task_id: "t".into(), artifact, last_chunk, ..ArtifactUpdate::default() };
        let mut inbound = inbound();
        let mut events = inbound.accept(received(Update::Artifact(update))).unwrap();
        events.extend(inbound.accept(received(status(TaskState::Completed, Vec::new()))).unwrap());
        assert!(events.iter().all(|event| event.long_running_tool_ids.is_empty()), "{events:?}");
        let is_call = |event: &EventData| event.content.as_ref().is_some_and(|it| it.function_calls().count() == 1);
        assert!(!events.is_empty() && events.iter().all(is_call), "{events:?}");
    }
}

fn call() -> Part {
    let mut call = Part::new(PartContent::Data(json!({"id": "f", "name": "ask", "args": {}})));
    call.metadata =
        JsonMap::from_iter([("adk_type".into(), json!("function_call")), ("adk_is_long_running".into(), json!(true))]);
    call
}

#[test]
fn remarks_are_thoughts_and_calls_in_them_wait_for_nobody() {
    let (mut inbound, call) = (inbound(), call());
    let working = inbound.accept(received(status(TaskState::Working, vec![Part::text("hm"), call.clone()]))).unwrap();
    assert_eq!((texts(&working), working[0].long_running_tool_ids.len()), (vec![String::new()], 0));
    let waiting = inbound.accept(received(status(TaskState::InputRequired, vec![call]))).unwrap();
    assert_eq!(waiting[0].long_running_tool_ids, ["f"]);
    assert!(inbound.has_ended());
}

#[test]
fn a_question_in_words_marks_the_task_as_waiting() {
    let mut inbound = inbound();
    let events = inbound.accept(received(status(TaskState::InputRequired, vec![Part::text("Where to?")]))).unwrap();
    assert_eq!(events[0].custom_metadata.as_ref().unwrap()[IS_WAITING], true);
}

#[test]
fn the_reason_of_a_failure_is_told() {
    let mut inbound = inbound();
    let error = inbound.accept(received(status(TaskState::Failed, vec![Part::text("no dice")]))).unwrap_err();
    assert_eq!(error.to_string(), "its task has failed: no dice");
    let error = inbound.accept(received(status(TaskState::Rejected, Vec::new()))).unwrap_err();
    assert_eq!(error.to_string(), "its task was refused: it gave no reason");
}

#[test]
fn an_empty_answer_is_an_event_with_the_ids() {
    let mut inbound = inbound();
    assert!(inbound.accept(received(status(TaskState::Completed, Vec::new()))).unwrap().is_empty());
    let events = inbound.finish();
    assert_eq!(events[0].custom_metadata.as_deref(), Some(&json!({TASK_ID: "t", CONTEXT_ID: "c"})));
}

#[test]
fn peers_change_no_state_and_malformed_metadata_is_left_out() {
    let metadata = json!({
        "adk_actions": {"escalate": true, "stateDelta": {"a": 1}, "transferToAgent": "root"},
        "adk_usage_metadata": {"totalTokenCount": 7}, "adk_grounding_metadata": "x", "adk_custom_metadata": {"k": 1},
    });
    let event = event_data(metadata.as_object().unwrap());
    let expected = EventActions { escalate: Some(true), ..EventActions::default() };
    assert_eq!((event.actions, event.grounding_metadata), (expected, None));
    assert_eq!((event.usage_metadata.unwrap().total(), *event.custom_metadata.unwrap()), (7, json!({"k": 1})));
}

#[test]
fn an_answer_has_a_limit_in_all() {
    let in_progress = || {
        let status = TaskStatus { state: TaskState::Working, ..TaskStatus::default() };
        Update::Task(Task { id: "t".into(), status, ..Task::default() })
    };
    let mut inbound = AnswerConverter::new(std::iter::empty(), 100);
    inbound.accept(ReceivedMessage { message: chunk("a", false, false), bytes: 60 }).unwrap();
    for _ in 0..10 {
        assert!(inbound.accept(ReceivedMessage { message: in_progress(), bytes: 60 }).unwrap().is_empty());
    }
    inbound.accept(ReceivedMessage { message: chunk("b", true, false), bytes: 40 }).unwrap();
    let error = inbound.accept(ReceivedMessage { message: chunk("c", true, false), bytes: 1 }).unwrap_err();
    assert_eq!(error, ClientError::TooLarge { what: "answer", limit: 100, key: "max_answer" });
}
