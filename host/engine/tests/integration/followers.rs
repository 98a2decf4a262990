//! Followers of long runs, which read the store page by page, and of runs whose messages are streamed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use hatchery_core::{
    AgentContext, AgentKind, Content, CustomAgent, CustomAgentSpec, Event, EventData, EventWindow, JsonMap,
    LiveRequest, Part, RunError, RunService, Services, Session, SessionKey, SessionService, StoreError, TurnStart,
};
use hatchery_engine::{App, Run, RunRequest, RunUpdate, Runner};
use hatchery_stores::MemorySessions;
use tokio::sync::Semaphore;

use crate::support::live::*;
use crate::support::*;

/// Sessions that count the most events of one answer to a follower.
#[derive(Default)]
struct CountedReads {
    sessions: MemorySessions,
    most: AtomicUsize,
}

#[async_trait]
impl SessionService for CountedReads {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        self.sessions.create(app, user, id, state).await
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        let found = SessionService::get(&self.sessions, key, window).await?;
        self.most.fetch_max(found.as_ref().map_or(0, |session| session.events.len()), Ordering::SeqCst);
        Ok(found)
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        SessionService::list(&self.sessions, app, user).await
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.sessions.delete(key).await
    }

    async fn begin_turn(&self, key: &SessionKey, last: Option<u64>, lease: Duration) -> Result<TurnStart, StoreError> {
        self.sessions.begin_turn(key, last, lease).await
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        self.sessions.renew_turn(key, fence, lease).await
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        self.sessions.append_with(key, event, fence).await
    }

    fn runs(&self) -> Option<&dyn RunService> {
        self.sessions.runs()
    }
}

/// Sends this many numbers, from 0 on.
struct Counts(usize);

#[async_trait]
impl CustomAgent for Counts {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for number in 0..self.0 {
            cx.say(number.to_string()).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_follower_holds_few_events_of_a_long_run_and_misses_none() {
    const EVENTS: usize = 500;
    let sessions = Arc::new(CountedReads::default());
    sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let runner = Runner::new(Services { sessions: sessions.clone(), ..services() });
    let spec = CustomAgentSpec { code: Arc::new(Counts(EVENTS)), model: None, tools: Vec::new() };
    let app = App::new("app", hatchery_core::Agent::new("root", "", AgentKind::Custom(spec))).unwrap();
    let message = Content::user("hi");
    let request = RunRequest { run_id: Some("r1".into()), ..RunRequest::new(USER, SESSION, message) };
    runner.run(Arc::new(app), request).await.unwrap().collect().await.unwrap();
    sessions.most.store(0, Ordering::SeqCst);
    for after in [0, 1, 64, 65, 499, 501] {
        let key = SessionKey::new("app", USER, SESSION);
        let mut updates = runner.follow(&key, "r1", after).await.unwrap().unwrap();
        let mut revisions = Vec::new();
        while let Some(update) = updates.next().await {
            if let RunUpdate::Event { revision, .. } = update.unwrap() {
                revisions.extend(revision);
            }
        }
        assert!(revisions.into_iter().eq(after.max(1) + 1..=EVENTS as u64 + 1), "after {after}");
    }
    assert_eq!(sessions.most.load(Ordering::SeqCst), 64);
}

/// A message, or a chunk of one: its id, its parts, and whether it is partial.
type Message = (String, Vec<Part>, bool);

fn chunk(id: &str, parts: Vec<Part>) -> Message {
    (id.into(), parts, true)
}

fn text_chunk(id: &str, text: &str) -> Message {
    chunk(id, vec![Part::text(text)])
}

fn whole(id: &str, text: &str) -> Message {
    (id.into(), vec![Part::text(text)], false)
}

/// Sends each of these messages once there is a permit for it.
struct Streams {
    messages: Vec<Message>,
    go_on: Semaphore,
}

#[async_trait]
impl CustomAgent for Streams {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for (id, parts, partial) in &self.messages {
            self.go_on.acquire().await.unwrap().forget();
            let content = Some(Arc::new(Content::new("model", parts.clone())));
            let data = EventData { id: id.clone(), content, partial: *partial, ..EventData::default() };
            cx.emit(data).await?;
        }
        Ok(())
    }
}

type Updates = BoxStream<'static, Result<RunUpdate, RunError>>;

/// A run of [`Streams`] in progress.
struct StreamedRun {
    app: Harness,
    agent: Arc<Streams>,
    run: Run,
}

impl StreamedRun {
    async fn start(messages: Vec<Message>) -> Self {
        let agent = Arc::new(Streams { messages, go_on: Semaphore::new(0) });
        let app = Harness::new(workflow_code("root", agent.clone())).await;
        let request = RunRequest { run_id: Some("r1".into()), ..app.request(Content::user("hi")) };
        let run = app.runner.run(app.app.clone(), request).await.unwrap();
        Self { app, agent, run }
    }

    /// Lets the agent send messages, and waits for them.
    async fn go_on(&mut self, count: usize) {
        self.agent.go_on.add_permits(count);
        for _ in 0..count {
            self.run.next().await.unwrap().unwrap();
        }
    }

    async fn follow(&self) -> Updates {
        follow(&self.app, "r1").await
    }
}

async fn follow(app: &Harness, run: &str) -> Updates {
    app.runner.follow(&SessionKey::new("app", USER, SESSION), run, 0).await.unwrap().unwrap()
}

/// Returns the next event.
async fn next(updates: &mut Updates) -> Arc<Event> {
    match updates.next().await.unwrap().unwrap() {
        RunUpdate::Event { event, .. } => event,
        RunUpdate::End(run) => panic!("it has ended: {run:?}"),
    }
}

/// Returns the remaining events in short form.
async fn rest(mut updates: Updates) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(update) = updates.next().await {
        if let RunUpdate::Event { event, .. } = update.unwrap() {
            events.push(brief(&event));
        }
    }
    events
}

fn thought(text: &str) -> Part {
    Part { thought: true, ..Part::text(text) }
}

#[tokio::test]
async fn a_follower_that_comes_during_a_message_gets_it_so_far_and_then_the_rest() {
    let mut streamed = StreamedRun::start(vec![
        text_chunk("before", "before"),
        whole("before", "before"),
        chunk("m", vec![thought("h")]),
        chunk("m", vec![thought("mm"), Part::text("Hel")]),
        text_chunk("m", "lo "),
        chunk("no text", Vec::new()),
        text_chunk("m", "there"),
        whole("m", "Hello there"),
    ])
    .await;
    streamed.go_on(6).await;
    let mut updates = streamed.follow().await;
    assert_eq!(brief(&*next(&mut updates).await), "root: before");
    let so_far = next(&mut updates).await;
    assert_eq!((&*so_far.id, so_far.partial, &*so_far.author, &*so_far.invocation_id), ("m", true, "root", "r1"));
    let content = Content::new("model", vec![thought("hmm"), Part::text("Hello ")]);
    assert_eq!(so_far.content.as_deref(), Some(&content));
    streamed.go_on(2).await;
    assert_eq!(rest(updates).await, ["root~: there", "root: Hello there"]);
    assert_eq!(rest(streamed.follow().await).await, ["root: before", "root: Hello there"]);
}

#[tokio::test]
async fn a_message_that_is_too_long_to_be_kept_has_no_beginning_for_those_who_come_during_it() {
    // Of at most 256 KiB.
    const KEPT_BYTES: usize = 255 << 10;
    let more = "y".repeat(1 << 10);
    let chunks = vec![text_chunk("m", &"x".repeat(KEPT_BYTES)), text_chunk("m", &more), text_chunk("m", "z")];
    let mut streamed = StreamedRun::start(chunks).await;
    streamed.go_on(1).await;
    let mut early = streamed.follow().await;
    assert_eq!(next(&mut early).await.content.as_ref().unwrap().text().len(), KEPT_BYTES);
    streamed.go_on(1).await;
    let mut late = streamed.follow().await;
    let (chunk, ()) = futures::join!(next(&mut late), streamed.go_on(1));
    assert_eq!(brief(&chunk), "root~: z");
    assert_eq!(rest(early).await, [format!("root~: {more}"), "root~: z".to_owned()]);
}

#[tokio::test]
async fn of_too_many_partial_messages_a_run_keeps_those_that_went_on_last() {
    const MAX_MESSAGES: usize = 128;
    let mut messages: Vec<_> = (0..MAX_MESSAGES).map(|number| text_chunk(&number.to_string(), "begun")).collect();
    messages.extend([text_chunk("0", " again"), text_chunk("new", "begun"), text_chunk("last", "begun")]);
    let mut streamed = StreamedRun::start(messages).await;
    streamed.go_on(MAX_MESSAGES + 2).await;
    let mut updates = streamed.follow().await;
    let mut kept = Vec::new();
    for _ in 0..MAX_MESSAGES {
        let event = next(&mut updates).await;
        kept.push(format!("{} {}", event.id, event.content.as_ref().unwrap().text()));
    }
    assert_eq!(kept[0], "2 begun", "the message 1 was dropped");
    assert_eq!(kept[MAX_MESSAGES - 2..], ["0 begun again", "new begun"]);
    streamed.go_on(1).await;
    assert_eq!(next(&mut updates).await.id, "last");
}

#[tokio::test]
async fn parts_count_towards_the_size_of_a_message_that_is_kept_and_empty_ones_are_not_kept() {
    let parts = |texts: [&str; 2]| {
        let [spoken, thought_of] = texts;
        (0..2000).flat_map(|_| [Part::text(spoken), thought(thought_of)]).collect()
    };
    let chunks = vec![
        chunk("small", parts(["x", "y"])),
        chunk("empty", parts(["", ""])),
        text_chunk("empty", "z"),
        text_chunk("small", "z"),
        text_chunk("empty", "!"),
    ];
    let mut streamed = StreamedRun::start(chunks).await;
    streamed.go_on(3).await;
    let mut updates = streamed.follow().await;
    let so_far = next(&mut updates).await;
    assert_eq!(
        (&*so_far.id, so_far.content.as_ref().unwrap().parts.as_slice()),
        ("empty", [Part::text("z")].as_slice())
    );
    streamed.go_on(2).await;
    assert_eq!(rest(updates).await, ["root~: z", "root~: !"], "the other message was too long");
}

#[tokio::test]
async fn a_follower_of_a_live_run_gets_what_was_said_before_it_came() {
    let model = LiveModel::new([vec![
        transcription("hello "),
        transcription("there"),
        Step::Expect(LiveRequest::content(Content::user("more"))),
        transcription(" again"),
        complete(),
    ]]);
    let app = Harness::new(model.agent("root", |_| {})).await;
    let mut live = Live::start(&app).await;
    live.queue.send_content(Content::user("hi")).await.unwrap();
    live.run.next().await.unwrap().unwrap();
    let run = live.run.next().await.unwrap().unwrap().invocation_id.clone();
    let mut updates = follow(&app, &run).await;
    let so_far = next(&mut updates).await;
    assert_eq!((so_far.partial, &*line(&so_far)), (true, "root: “hello there”"));
    assert_eq!(live.ask("more").await, ["root: “hello there again”"]);
    let chunk = next(&mut updates).await;
    assert_eq!((chunk.partial, &*line(&chunk), &chunk.id), (true, "root: “ again”", &so_far.id));
    let whole = next(&mut updates).await;
    assert_eq!((whole.partial, &*line(&whole), &whole.id), (false, "root: “hello there again”", &so_far.id));
    live.finish().await;
}
