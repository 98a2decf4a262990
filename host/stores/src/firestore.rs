//! Sessions and memory in Firestore, over its REST API.
//!
//! | document | content |
//! |---|---|
//! | `{root}/{user}/sessions/{app}~{session}` | a session: its state, its counters, its turn |
//! | … `/user-event/{event}` | an event: its JSON, and the fields that queries use |
//! | … `/runs/{run}`, … `/calls/{run}~{call}` | its runs, and the journals of their calls |
//! | `app-state/{app}`, `user-state/{app}/users/{user}` | shared state |
//! | `background-runs/{app}/pending/{user}~{session}~{run}` | active background runs |
//! | `{root}/{user}/memory/{app}/entries/{session}~{event}` | remembered messages with their keywords |
//! | `{root}-memory/{app}~{user}~{session}` | the memory of a session |
//!
//! Queries use only the indexes that Firestore creates automatically. Writes use optimistic concurrency: a commit
//! requires that the session's document is unchanged since it was read, and is retried otherwise. So there are no
//! locks, and a host that dies blocks no other one. Reads of several documents use one read time.

mod client;
mod document;
mod keys;
mod keywords;
mod memory;
mod names;
mod properties;
mod query;
mod sessions;
mod uri;

pub use client::{AccessTokens, FirestoreBuilder, FirestoreClient};
pub use memory::FirestoreMemoryService;
pub use properties::FirestoreProperties;
pub use sessions::FirestoreSessionService;
pub use uri::FirestoreUri;
