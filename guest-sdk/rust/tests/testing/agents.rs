//! Running custom agents, and the agents below them.

use hatchery_guest::prelude::*;
use hatchery_guest::testing::Host;

/// Counts in pieces.
#[agent]
async fn counter(cx: AgentContext) -> Result<(), Error> {
    cx.set_state("count", 1)?;
    cx.emit(Event { partial: true, ..Event::text("one") }).await?;
    cx.emit(Event { partial: true, ..Event::text(" two") }).await?;
    cx.say("one two").await?;
    cx.set_state("count", 2)
}

#[test]
fn events_have_the_fields_that_the_host_sets() {
    let host = Host::new().user_says("count");
    let events = host.run(counter);
    let seen: Vec<_> = events.iter().map(|event| (event.text_content(), event.partial, event.id.as_str())).collect();
    assert_eq!(
        seen,
        [
            ("one".into(), true, "event-2"),
            (" two".into(), true, "event-2"),
            ("one two".into(), false, "event-2"),
            (String::new(), false, "event-3")
        ]
    );
    assert!(events.iter().all(|event| event.author == "counter" && event.invocation_id == "e-1"));
    assert!(events.is_sorted_by_key(|event| event.timestamp_micros));
}

#[test]
fn state_is_part_of_the_next_complete_event_or_of_an_own_one_at_the_end() {
    let host = Host::new();
    let events = host.run(counter);
    let deltas: Vec<_> = events.iter().map(|event| event.actions.state_delta.get("count").cloned()).collect();
    assert_eq!(deltas, [None, None, Some(json!(1)), Some(json!(2))]);
    assert_eq!((host.state_value("count"), host.events().len()), (Some(2), 2));
}

#[agent]
async fn failing(cx: AgentContext) -> Result<(), Error> {
    cx.say("first").await?;
    Err(Error::new("BROKEN", "it broke"))
}

#[test]
fn a_failure_is_the_last_event() {
    let events = Host::new().run(failing);
    assert_eq!((events.len(), events[0].text_content().as_str()), (2, "first"));
    assert_eq!(
        (events[1].error_code.as_deref(), events[1].error_message.as_deref()),
        (Some("BROKEN"), Some("it broke"))
    );
}

type Outcome = Result<(), Error>;

#[agent]
async fn lost() -> Outcome {
    Err(Error::new("LOST", "it is lost"))
}

#[test]
fn a_failure_is_reported_if_the_result_has_an_alias() {
    let events = Host::new().run(lost);
    assert_eq!(events.last().and_then(|event| event.error_code.as_deref()), Some("LOST"));
}

#[agent]
async fn impostor(cx: AgentContext) -> Result<(), Error> {
    cx.emit(Event { author: "user".into(), ..Event::text("I agree") }).await?;
    cx.say("never").await
}

#[test]
fn an_agent_cannot_emit_events_of_the_user() {
    let events = Host::new().run(impostor);
    assert_eq!(events.len(), 1);
    let message = "agent `impostor`: may not emit events as `user`; leave the author of its events empty";
    assert_eq!(events[0].error_message.as_deref(), Some(message));
}

/// Relays what it likes.
#[agent(sub_agents = ["helper", "desk/clerk"])]
async fn picky(cx: AgentContext) -> Result<(), Error> {
    cx.set_state("before", true)?;
    let mut events = cx.sub_agent("helper").await?;
    while let Some(event) = events.next().await? {
        if event.text_content() != "dull" {
            cx.relay(Event { content: None, ..event }).await?;
        }
    }
    assert_eq!(cx.state::<u32>("kept")?, Some(1));
    assert_eq!(cx.state::<u32>("dropped")?, None);
    cx.run_sub_agent("clerk").await
}

#[test]
fn events_of_a_sub_agent_are_stored_unchanged_once_they_are_relayed() {
    let helper = [
        Event::text("witty").with_state("kept", 1),
        Event::text("dull").with_state("dropped", 1),
        Event { author: "guest".into(), ..Event::text("brief") },
    ];
    let host = Host::new().sub_agent("helper", helper).sub_agent("clerk", [Content::model("bye")]);
    let events = host.run(picky);
    let seen: Vec<_> = events.iter().map(|event| (event.author.as_str(), event.text_content())).collect();
    let answer = |author, text: &str| (author, text.to_owned());
    assert_eq!(
        seen,
        [answer("picky", ""), answer("helper", "witty"), answer("guest", "brief"), answer("clerk", "bye")]
    );
    assert_eq!(host.events(), events);
    assert_eq!(Value::Object(host.all_state()), json!({ "before": true, "kept": 1 }));
}

#[agent(sub_agents = ["helper"])]
async fn trusting(cx: AgentContext) -> Result<(), Error> {
    if let Err(error) = cx.run_sub_agent("helper").await {
        cx.say(format!("{}: {}", error.code, error.message)).await?;
        return Ok(());
    }
    cx.say("all went well").await
}

fn broken() -> Event {
    Event { error_code: Some("DOWN".into()), error_message: Some("it is down".into()), ..Event::default() }
}

#[test]
fn a_sub_agent_that_fails_at_once_does_not_begin() {
    let events = Host::new().sub_agent("helper", [broken()]).run(trusting);
    assert_eq!((events.len(), events[0].text_content().as_str()), (1, "DOWN: it is down"));
}

#[test]
fn a_relayed_failure_ends_the_run() {
    let events = Host::new().sub_agent("helper", [Event::text("well"), broken(), Event::text("no")]).run(trusting);
    let seen: Vec<_> = events.iter().map(|event| (event.text_content(), event.error_code.as_deref())).collect();
    assert_eq!(seen, [("well".into(), None), (String::new(), Some("DOWN"))]);
    assert_eq!(events[1].author, "helper");
}

#[test]
fn the_error_of_an_unknown_sub_agent_says_what_to_add_and_where() {
    let events = Host::new().run(trusting);
    assert_eq!(
        events[0].text_content(),
        "NOT_FOUND: Agent not found: helper below `trusting`, which has `helper`; \
         add `.sub_agent(\"helper\", [Event::text(\"…\")])` to the test's host"
    );

    #[agent]
    async fn lonely(cx: AgentContext) -> Result<(), Error> {
        cx.run_sub_agent("helper").await
    }
    let events = Host::new().sub_agent("helper", [Event::text("here")]).run(lonely);
    assert_eq!(
        events[0].error_message.as_deref(),
        Some(
            "Agent not found: helper below `lonely`, which has none; add it to the agent's, as in `#[agent(sub_agents = [helper])]`"
        )
    );
}

#[agent(sub_agents = [counter])]
async fn parent(cx: AgentContext) -> Result<(), Error> {
    cx.run_sub_agent("counter").await?;
    cx.run_sub_agent("counter").await
}

#[test]
fn a_mock_sub_agent_is_found_below_every_agent() {
    let answer = Host::new().run(counter);
    let events = Host::new().sub_agent("counter", answer.clone()).run(parent);
    assert_eq!(events.len(), 2 * answer.len());
    assert_eq!(events[2].text_content(), "one two");
}

#[test]
#[should_panic(expected = "agent `day` is not a custom agent, so it has no code to run here")]
fn an_agent_without_code_does_not_run() {
    Host::new().run(|| SequentialAgent::new("day"));
}

#[test]
fn runs_of_one_host_share_its_session() {
    #[agent]
    async fn visitor(cx: AgentContext) -> Result<(), Error> {
        let visits = cx.state::<u32>("visits")?.unwrap_or(0) + 1;
        cx.emit(Event::text(visits.to_string()).with_state("visits", visits)).await
    }
    let host = Host::new();
    assert_eq!(
        (host.run(visitor)[0].text_content(), host.run(visitor)[0].text_content()),
        ("1".to_owned(), "2".to_owned())
    );
}
