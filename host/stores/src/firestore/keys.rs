//! Names of collections and fields.

/// The default of the root collection.
pub(super) const ROOT: &str = "adk-session";
pub(super) const SESSIONS: &str = "sessions";
pub(super) const EVENTS: &str = "user-event";
pub(super) const APP_STATE: &str = "app-state";
pub(super) const USER_STATE: &str = "user-state";
pub(super) const USERS: &str = "users";
pub(super) const RUNS: &str = "runs";
pub(super) const CALLS: &str = "calls";
pub(super) const BACKGROUND_RUNS: &str = "background-runs";
pub(super) const PENDING: &str = "pending";
pub(super) const MEMORY: &str = "memory";
pub(super) const ENTRIES: &str = "entries";
/// The parts of JSON that is too long for one document.
pub(super) const PARTS: &str = "parts";

pub(super) const APP_NAME: &str = "appName";
pub(super) const AUTHOR: &str = "author";
pub(super) const ID: &str = "id";
pub(super) const STATE: &str = "state";
pub(super) const TIMESTAMP: &str = "timestamp";
pub(super) const UPDATE_TIME: &str = "updateTime";
pub(super) const USER_ID: &str = "userId";
/// The role of messages of users.
pub(super) const USER: &str = "user";
/// The role of messages of agents.
pub(super) const MODEL: &str = "model";

pub(super) const ROLE: &str = "role";
pub(super) const REVISION: &str = "revision";
pub(super) const JSON: &str = "json";
pub(super) const CREATE_TIME: &str = "createTime";
pub(super) const EVENT_BYTES: &str = "eventBytes";
pub(super) const STATE_KEYS: &str = "stateKeys";
pub(super) const STATE_BYTES: &str = "stateBytes";
pub(super) const INITIAL_STATE: &str = "initialState";
pub(super) const FENCE: &str = "fence";
pub(super) const LEASED_UNTIL: &str = "leasedUntil";
pub(super) const LAST_RUN: &str = "lastRun";
/// Orders the sessions of a user: by app, then the most recently updated first, then by id.
pub(super) const LISTING: &str = "listing";
pub(super) const STATUS: &str = "status";

pub(super) const RUN: &str = "run";
pub(super) const CALL: &str = "call";
pub(super) const OUTCOME: &str = "outcome";
pub(super) const NUMBER: &str = "number";
pub(super) const FAILURE: &str = "failure";
pub(super) const BACKGROUND: &str = "background";
pub(super) const CANCEL_REQUESTED: &str = "cancelRequested";
pub(super) const ATTEMPTS: &str = "attempts";
pub(super) const FIRST_REVISION: &str = "firstRevision";
pub(super) const REQUEST: &str = "request";
pub(super) const SESSION_ID: &str = "sessionId";

pub(super) const KEYWORDS: &str = "keywords";
pub(super) const CONTENT: &str = "content";
