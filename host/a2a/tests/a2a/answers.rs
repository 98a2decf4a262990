//! Answers to calls that a task waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{SessionKey, SessionService, StoreError, TurnStart, WrapperSessionService};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{llm_with, long_running, services};
use serde_json::json;

use crate::support::{Options, Server, answer, open_call, state, texts};

#[tokio::test]
async fn concurrent_answers_are_runs_of_their_own() {
    let server = Server::new(Options::default());
    let task = server.send("ask a b", json!({})).await;
    assert_eq!(state(&task), "INPUT_REQUIRED");
    let ids = json!({"taskId": task["id"]});
    let (first, second) =
        tokio::join!(server.send_parts(answer("a"), ids.clone()), server.send_parts(answer("b"), ids));
    assert_eq!((&first["id"], &second["id"]), (&task["id"], &task["id"]));
    let done = server.task(&task).await;
    assert_eq!((state(&done), texts(&done)), ("COMPLETED", vec!["got a", "got b"]));
}

#[tokio::test]
async fn the_answer_to_one_task_does_not_wait_for_that_to_another() {
    let server = Server::new(Options::default());
    let blocked = server.begin("wait", json!({"contextId": "one"})).await;
    server.stopped().await;
    let task = server.send("ask a", json!({"contextId": "two"})).await;
    let done = server.send_parts(answer("a"), json!({"taskId": task["id"]})).await;
    assert_eq!((state(&done), texts(&done)), ("COMPLETED", vec!["got a"]));
    assert_eq!(state(&server.task(&blocked).await), "WORKING");
    server.agent.released.add_permits(1);
}

/// Sessions whose turns cannot begin while a flag is set.
struct BusySessions {
    inner: Arc<dyn SessionService>,
    is_busy: Arc<AtomicBool>,
}

#[async_trait]
impl WrapperSessionService for BusySessions {
    fn inner(&self) -> &dyn SessionService {
        &*self.inner
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        if self.is_busy.load(Ordering::SeqCst) {
            Err(StoreError::Busy { context: "too busy".into(), retry_after: Duration::from_secs(1) })
        } else {
            self.inner.begin_turn(key, previous, lease).await
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_stored_is_an_error() {
    let is_busy = Arc::new(AtomicBool::new(false));
    let sessions = BusySessions { inner: services().sessions, is_busy: is_busy.clone() };
    let model = Scripted::sequence([Reply::call("ask", json!({})), Reply::from("done")]);
    let tool = long_running("ask", |_, _| Ok(json!({"status": "pending"})));
    let agent = llm_with("asking", model, |llm| llm.tools = vec![tool]);
    let options = Options { sessions: Some(Arc::new(sessions)), resumable: Some(agent), ..Options::default() };
    let server = Server::new(options);
    let task = server.send("ask", json!({})).await;
    assert_eq!(state(&task), "INPUT_REQUIRED");
    let answer = answer(open_call(&task));
    let ids = json!({"taskId": task["id"]});
    // The lease of the turn before is not passed on.
    server.runner.drain().await;
    is_busy.store(true, Ordering::SeqCst);
    let params = server.params(answer.clone(), ids.clone());
    let (_, message) = server.error("SendMessage", params.clone()).await;
    assert_eq!(message, "too busy; try again in 1 s");
    let response = server.post("SendStreamingMessage", params).await;
    let stream = String::from_utf8_lossy(response.body()).into_owned();
    assert!(stream.contains("too busy; try again in 1 s"), "{stream}");
    is_busy.store(false, Ordering::SeqCst);
    let done = server.send_parts(answer, ids).await;
    assert_eq!((state(&done), texts(&done)), ("COMPLETED", vec!["done"]));
}
