//! The fuzz targets with their invariants.

mod server;

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use hatchery::Config;
use hatchery_core::{Event, EventData, LlmRequest, Model, StreamingMode};
use hatchery_models::scripted::Scripted;
use hatchery_registry::{Interfaces, LOCK_FILE, Reference, SignatureVerifier, TrustedKey};
use hatchery_wasm::fuzz::{GuestEvent, convert_event};
use hatchery_wasm::version::{Contract, required_version};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub use server::http;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

thread_local! {
    static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
}

/// Writes the bytes to a file in a folder of this thread. Returns its path.
fn write(name: &str, bytes: &[u8]) -> PathBuf {
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| tempfile::tempdir().expect("a temporary folder"));
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a temporary file");
        path
    })
}

/// Loads a YAML agent.
pub fn agent_yaml(bytes: &[u8]) {
    let path = write("root_agent.yaml", bytes);
    let registry = hatchery_engine::StaticCatalog::default();
    if let Err(error) = hatchery_engine::yaml::load_agent(&path, &registry) {
        assert!(!error.to_string().is_empty());
    }
}

/// Parses `hatchery.yaml`.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(error) = Config::parse(text, Path::new("/srv/agents/hatchery.yaml")) {
        assert!(error.to_string().starts_with("/srv/agents/hatchery.yaml"), "{error}");
    }
}

/// Reads a component file up to the point at which its code would be compiled.
pub fn component(bytes: &[u8]) {
    let _ = Contract::read("fuzz", bytes);
    let _ = required_version(bytes);
    let _ = Interfaces::read("fuzz", bytes);
}

/// Parses the JSON of an event, from a client or a store. An event that was parsed must survive a round trip.
pub fn event(bytes: &[u8]) {
    if let Ok(event) = Event::from_json(bytes.to_vec()) {
        round_trip(&event);
    }
}

fn round_trip(event: &EventData) {
    let written = serde_json::to_vec(event).expect("an event can be written");
    let shown = || String::from_utf8_lossy(&written).into_owned();
    let read: EventData = serde_json::from_slice(&written).unwrap_or_else(|error| panic!("{error}: {}", shown()));
    let again = serde_json::to_vec(&read).expect("an event can be written");
    assert!(again == written, "{} is parsed as {}", shown(), String::from_utf8_lossy(&again));
}

/// Converts an event of a guest. The input is the texts of its fields, separated by zero bytes.
pub fn guest_event(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut texts = text.split('\0').map(str::to_owned);
    let mut next = || texts.next().unwrap_or_default();
    let guest = GuestEvent {
        text: next(),
        part_extra: next(),
        args: next(),
        call_extra: next(),
        response: next(),
        state: next(),
        actions_extra: next(),
        event_extra: next(),
    };
    if let Some(event) = convert_event(guest) {
        round_trip(&event);
        let read = Event::from_json(event.json().clone()).unwrap_or_else(|error| panic!("{error}: {:?}", event.json()));
        let calls = |event: &Event| event.function_calls().map(|call| call.name.clone()).collect::<Vec<_>>();
        assert_eq!(calls(&read), calls(&event), "{:?}", event.json());
    }
}

/// Reads the body of a model provider's response. The first byte of the input is the size of its chunks.
pub fn event_stream(bytes: &[u8]) {
    let (chunk, body) = bytes.split_first().map_or((0, bytes), |(first, rest)| (usize::from(*first), rest));
    RUNTIME.block_on(hatchery_models::fuzz::read_event_streams(body, chunk));
}

/// Parses references, keys and the lock file of components from registries.
pub fn registry(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for line in text.lines().take(4) {
        if let Ok(reference) = line.parse::<Reference>() {
            let shown = reference.to_string();
            assert_eq!(shown.parse::<Reference>().map(|again| again.to_string()).ok(), Some(shown));
        }
        let _ = line.parse::<TrustedKey>();
    }
    let path = write(LOCK_FILE, bytes);
    let folder = path.parent().expect("a folder");
    let _ = RUNTIME.block_on(hatchery_registry::verify(folder, &SignatureVerifier::default()));
}

/// Reads a manifest from a registry.
pub fn manifest(bytes: &[u8]) {
    static REFERENCE: LazyLock<Reference> = LazyLock::new(|| "registry.example/swap:1.0".parse().expect("a reference"));
    if let Err(error) = hatchery_registry::fuzz::read_manifest(&REFERENCE, bytes) {
        assert!(error.to_string().contains("registry.example"), "{error}");
    }
}

/// Plays the script of a `scripted:` model.
pub fn script(bytes: &[u8]) {
    let model = Scripted::file(write("answers.yaml", bytes));
    RUNTIME.block_on(async {
        // A script may contain pauses, which are not tested here.
        tokio::time::timeout(std::time::Duration::from_millis(20), async {
            if let Ok(mut responses) = model.generate(LlmRequest::default(), StreamingMode::Off).await {
                use futures::StreamExt;
                while responses.next().await.is_some() {}
            }
        })
        .await
        .ok();
    });
}
