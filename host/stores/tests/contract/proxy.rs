//! A proxy in front of the Firestore emulator, which counts documents and makes requests fail.

use std::sync::{Arc, Mutex};

use hatchery_stores::firestore::FirestoreClient;
use hatchery_test_services::firestore_emulator;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The fate of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The emulator gets it, but its answer is lost.
    AnswerLost,
    /// The emulator gets it, but its answer is held until [`Proxy::release`].
    AnswerHeld,
    /// The answer is an error, and the emulator does not get it.
    Unavailable,
}

pub struct Proxy {
    address: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// A permit for each answer that is held.
    held: Semaphore,
    /// A permit for each answer that may go on.
    released: Semaphore,
    fault: Mutex<Option<(&'static str, Fault)>>,
    /// The methods that were called, and the number of documents in the answers.
    reads: Mutex<Vec<(&'static str, usize)>>,
}

const METHODS: [&str; 3] = [":batchGet", ":commit", ":runQuery"];

impl Proxy {
    /// Returns `None` if there is no emulator.
    pub async fn start() -> Option<Self> {
        let emulator = firestore_emulator()?;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (fault, reads) = Default::default();
        let shared = Arc::new(Shared { held: Semaphore::new(0), released: Semaphore::new(0), fault, reads });
        let of_requests = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, emulator, of_requests.clone()));
            }
        });
        Some(Self { address, shared })
    }

    /// Returns a client of a new project.
    pub fn client(&self) -> FirestoreClient {
        self.client_of(&format!("test-{}", uuid::Uuid::new_v4()))
    }

    /// Returns a client of a project.
    pub fn client_of(&self, project: &str) -> FirestoreClient {
        FirestoreClient::builder(project).emulator(&self.address).build().unwrap()
    }

    /// Waits until an answer is held.
    pub async fn held(&self) {
        self.shared.held.acquire().await.unwrap().forget();
    }

    /// Lets an answer go on that is held.
    pub fn release(&self) {
        self.shared.released.add_permits(1);
    }

    /// Makes the next call of a method fail.
    pub fn fail_next(&self, method: &'static str, fault: Fault) {
        *self.shared.fault.lock().unwrap() = Some((method, fault));
    }

    /// Returns the calls since the last time.
    pub fn take_reads(&self) -> Vec<(&'static str, usize)> {
        std::mem::take(&mut self.shared.reads.lock().unwrap())
    }
}

/// Serves one request.
async fn serve(mut stream: TcpStream, emulator: &str, shared: Arc<Shared>) {
    let (path, body) = read_request(&mut stream).await;
    let method = METHODS.into_iter().find(|method| path.ends_with(method)).unwrap();
    let fault = {
        let mut fault = shared.fault.lock().unwrap();
        let is_due = fault.is_some_and(|(wanted, _)| wanted == method);
        if is_due { fault.take().map(|(_, fault)| fault) } else { None }
    };
    if fault == Some(Fault::Unavailable) {
        return answer(&mut stream, "503 Service Unavailable", "{}").await;
    }
    let request = reqwest::Client::new().post(format!("http://{emulator}{path}")).bearer_auth("owner");
    let response = request.header("content-type", "application/json").body(body).send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    if fault == Some(Fault::AnswerLost) {
        return;
    }
    if fault == Some(Fault::AnswerHeld) {
        shared.held.add_permits(1);
        shared.released.acquire().await.unwrap().forget();
    }
    let documents = text.matches("\"found\": {").count() + text.matches("\"document\": {").count();
    shared.reads.lock().unwrap().push((method, documents));
    answer(&mut stream, status.as_str(), &text).await;
}

async fn read_request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).await.unwrap();
    let path = line.split(' ').nth(1).unwrap().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).await.unwrap();
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    (path, body)
}

async fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
}
