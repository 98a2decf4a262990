//! A server of the tests' own that tools call. Each request waits until the test lets it go on, so that the test can
//! kill the host before or after any effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::effects::{read_head, send_text};
use crate::host::TIMEOUT;

/// A running server. An effect has happened when its request has arrived.
pub struct HeldEffects {
    /// The URL of the server.
    pub url: String,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    keys: Keys,
}

/// The idempotency keys of the requests of each effect, in the order of their arrival.
type Keys = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// A request that waits for its answer. Dropping it leaves it without one.
pub struct Arrival {
    /// The name of the effect.
    pub name: String,
    answer: oneshot::Sender<()>,
    answered: oneshot::Receiver<()>,
}

impl Arrival {
    /// Answers the request. Returns when the answer is sent, or the client is gone.
    pub async fn answer(self) {
        // Fails if the connection has ended.
        let _ = self.answer.send(());
        let _ = self.answered.await;
    }
}

impl HeldEffects {
    /// Starts the server.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://localhost:{}", listener.local_addr()?.port());
        let (sender, arrivals) = mpsc::unbounded_channel();
        let keys = Keys::default();
        let counted = keys.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client may go away at any time.
                tokio::spawn(hold(stream, counted.clone(), sender.clone()));
            }
        });
        Ok(Self { url, arrivals, keys })
    }

    /// Waits for the next request.
    ///
    /// # Errors
    /// If there is none for a long time.
    pub async fn next(&mut self) -> anyhow::Result<Arrival> {
        let arrival = tokio::time::timeout(TIMEOUT, self.arrivals.recv()).await;
        arrival.context("no request has arrived")?.context("the server has ended")
    }

    /// Returns the idempotency keys of all requests so far, by effect; an empty text for a request without a key.
    pub fn keys(&self) -> BTreeMap<String, Vec<String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how often an effect has happened.
    pub fn count(&self, effect: &str) -> usize {
        self.keys().get(effect).map_or(0, Vec::len)
    }

    /// Forgets all requests.
    pub fn reset(&self) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

async fn hold(mut stream: TcpStream, keys: Keys, arrivals: mpsc::UnboundedSender<Arrival>) -> anyhow::Result<()> {
    let (path, key) = read_head(&mut stream).await?;
    let name = path.trim_start_matches('/').to_owned();
    keys.lock().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default().push(key.unwrap_or_default());
    let ((answer, go), (done, answered)) = (oneshot::channel(), oneshot::channel());
    let text = format!("effect {name};");
    arrivals.send(Arrival { name, answer, answered })?;
    go.await?;
    let sent = send_text(stream, &text).await;
    // The test may have gone on.
    let _ = done.send(());
    sent
}
