//! Lists of tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{EventWindow, Session, SessionKey, SessionService, StoreError, WrapperSessionService};
use hatchery_test_support::services;
use serde_json::{Value, json};

use crate::support::{Options, Server, answer};

/// Sessions that count the events that are read.
struct CountingSessions {
    inner: Arc<dyn SessionService>,
    read: Arc<AtomicUsize>,
}

#[async_trait]
impl WrapperSessionService for CountingSessions {
    fn inner(&self) -> &dyn SessionService {
        &*self.inner
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        let session = self.inner.get(key, window).await?;
        self.read.fetch_add(session.as_ref().map_or(0, |session| session.events.len()), Ordering::SeqCst);
        Ok(session)
    }
}

fn ids(page: &Value) -> Vec<&str> {
    page["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_page_reads_the_events_of_its_tasks_only() {
    let read = Arc::new(AtomicUsize::new(0));
    let sessions = CountingSessions { inner: services().sessions, read: read.clone() };
    let server = Server::new(Options { sessions: Some(Arc::new(sessions)), ..Options::default() });
    let mut sent = Vec::new();
    for number in 0..20 {
        let task = server.send(&format!("number {number}"), json!({"contextId": "c"})).await;
        sent.insert(0, task["id"].as_str().unwrap().to_owned());
    }
    read.store(0, Ordering::SeqCst);
    let page = server.result("ListTasks", json!({"contextId": "c", "pageSize": 3})).await;
    assert_eq!((ids(&page), &page["totalSize"]), (sent[..3].iter().map(String::as_str).collect(), &json!(20)));
    // A message and an answer for each.
    assert_eq!(read.load(Ordering::SeqCst), 6);
    let rest = server.result("ListTasks", json!({"contextId": "c", "pageToken": page["nextPageToken"]})).await;
    assert_eq!((ids(&rest).len(), &rest["nextPageToken"]), (17, &json!("")));
}

#[tokio::test]
async fn tasks_are_listed_by_state() {
    let server = Server::new(Options::default());
    let context = json!({"contextId": "c"});
    let done = server.send("hello", context.clone()).await;
    let waiting = server.send("ask a b", context.clone()).await;
    server.send_parts(answer("a"), json!({"taskId": waiting["id"]})).await;
    for (state, expected) in [
        ("TASK_STATE_COMPLETED", vec![&done]),
        ("TASK_STATE_INPUT_REQUIRED", vec![&waiting]),
        ("TASK_STATE_AUTH_REQUIRED", vec![]),
        ("TASK_STATE_WORKING", vec![]),
    ] {
        let page = server.result("ListTasks", json!({"contextId": "c", "status": state})).await;
        let expected: Vec<_> = expected.iter().map(|task| task["id"].as_str().unwrap()).collect();
        assert_eq!((ids(&page), &page["totalSize"]), (expected, &json!(ids(&page).len())), "{state}");
    }
}

#[tokio::test]
async fn tasks_are_listed_that_have_changed_since_a_time() {
    let server = Server::new(Options::default());
    let first = server.send("one", json!({"contextId": "c"})).await;
    let last = loop {
        let task = server.send("two", json!({"contextId": "c"})).await;
        if task["status"]["timestamp"] != first["status"]["timestamp"] {
            break task;
        }
    };
    let since = |time: &Value| json!({"contextId": "c", "statusTimestampAfter": time});
    let page = server.result("ListTasks", since(&last["status"]["timestamp"])).await;
    assert_eq!(ids(&page), [last["id"].as_str().unwrap()]);
    let page = server.result("ListTasks", since(&first["status"]["timestamp"])).await;
    assert_eq!(ids(&page).last().copied(), first["id"].as_str());
    let page = server.result("ListTasks", since(&json!("2100-01-01T00:00:00Z"))).await;
    assert_eq!((ids(&page), &page["totalSize"]), (vec![], &json!(0)));
    let (code, message) = server.error("ListTasks", since(&json!("yesterday"))).await;
    let expected = "`statusTimestampAfter` is not a time in UTC such as `2026-05-01T12:00:00Z`";
    assert_eq!((code, message.as_str()), (-32602, expected));
}
