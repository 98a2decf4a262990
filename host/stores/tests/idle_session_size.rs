//! Memory of a session and of its events. The only test of this file, because it counts all allocations of the process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hatchery_core::{Content, Event, EventActions, EventData, EventWindow, JsonMap, SessionService};
use hatchery_stores::MemorySessions;
use hatchery_test_support::{CountingAllocator, short_event};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns an event as [`short_event`] does, with a delta that was empty first.
fn event_with_grown_delta(number: usize) -> Arc<Event> {
    let mut actions = EventActions::default();
    actions.state_delta.insert("turn".into(), number.into());
    let content = Some(Arc::new(Content::user("Roll two dice, please.")));
    Event::new(EventData { author: "user".into(), content, actions, ..EventData::default() })
}

#[test]
fn an_idle_session_and_its_ten_events_use_no_more_than_they_need() {
    const SESSIONS: usize = 1000;
    let before_events = CountingAllocator::allocated();
    let events: Vec<Vec<Arc<Event>>> = (0..SESSIONS).map(|_| (0..10).map(short_event).collect()).collect();
    let before = CountingAllocator::allocated();
    let sessions = MemorySessions::new();
    futures::executor::block_on(async {
        for events in &events {
            let key = sessions.create("dice", "ann", None, JsonMap::new()).await.unwrap().key;
            for event in events {
                sessions.append(&key, event).await.unwrap();
                sessions.get(&key, EventWindow::All).await.unwrap();
            }
        }
    });
    let after = CountingAllocator::allocated();
    let (events, session) = ((before - before_events) / SESSIONS as isize, (after - before) / SESSIONS as isize);
    println!("a session takes {session} bytes beside its events, ten events take {events} bytes");
    assert!(session <= 2 * 1024 + 256, "{session} bytes");
    assert!(events <= 10 * 1024, "{events} bytes");

    let before = CountingAllocator::allocated();
    let grown: Vec<Arc<Event>> = (0..SESSIONS * 10).map(event_with_grown_delta).collect();
    let grown_events = (CountingAllocator::allocated() - before) / SESSIONS as isize;
    assert!(grown_events <= events + 128, "{grown_events} bytes instead of {events}: the delta has spare capacity");
    // The thread keeps the buffer that the JSON of its events is written to.
    event_with_grown_delta(0).json();
    let before = CountingAllocator::allocated();
    let json = grown.iter().map(|event| event.json().len()).sum::<usize>() as isize;
    assert_eq!(CountingAllocator::allocated() - before, json, "the JSON has spare capacity");
    drop((grown, sessions));
    assert_idle_sessions_are_small();
}

/// Asserts the memory of an idle session of ten events.
fn assert_idle_sessions_are_small() {
    const SESSIONS: usize = 1000;
    let before = CountingAllocator::allocated();
    let sessions = MemorySessions::new().with_idle_time(Duration::ZERO);
    futures::executor::block_on(async {
        let mut stored = Vec::new();
        for _ in 0..SESSIONS {
            let key = sessions.create("dice", "ann", None, JsonMap::new()).await.unwrap().key;
            let mut json = [const { Bytes::new() }; 10];
            for (number, json) in json.iter_mut().enumerate() {
                let event = short_event(number);
                sessions.append(&key, &event).await.unwrap();
                *json = Bytes::copy_from_slice(event.json());
            }
            stored.push((key, json));
        }
        // Each call packs sessions that were not used since.
        let key = sessions.create("dice", "bob", None, JsonMap::new()).await.unwrap().key;
        for _ in 0..SESSIONS {
            sessions.get(&key, EventWindow::Recent(0)).await.unwrap();
        }
        let allocated = CountingAllocator::allocated();
        for (key, json) in &stored[..10] {
            let session = sessions.get(key, EventWindow::All).await.unwrap().unwrap();
            assert!(session.events.iter().map(|event| event.json()).eq(json.iter()));
        }
        let with_copies = CountingAllocator::allocated();
        drop(stored);
        let copies = with_copies - CountingAllocator::allocated();
        let session = (allocated - before - copies) / SESSIONS as isize;
        println!("an idle session of ten events takes {session} bytes");
        assert!(session <= 5 * 1024, "{session} bytes");
    });
}
