//! Signatures (HMAC-SHA256) that prove that this host has created an event.
//!
//! Sessions contain events that others have written: imported history, and events of components. Before the engine acts
//! on an event (a person's approval, a late result, a resumed run, a transfer), it verifies the event's proof: an HMAC
//! over the fields that it acts on, with a key that only the host has. The proof is a string under [`PROOF_KEY`] in
//! the event's custom metadata. Clients can read it, but not forge it.

use std::fmt;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::digest::Key;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::event::{EventData, new_event_id};
use crate::id::SessionKey;
use crate::json::JsonMap;

/// The key of the custom metadata that contains an event's proof.
pub const PROOF_KEY: &str = "hatchery:proof";

/// The prefix of every signed message. Must change with the format.
const FORMAT: &[u8] = b"hatchery event 1";

/// The prefix of the messages from which keys are derived. No signed message begins with it.
const DERIVED_KEY: &[u8] = b"hatchery key 1";

/// The key of a process that shares its sessions with no other.
static PROCESS: LazyLock<EventSigner> = LazyLock::new(|| EventSigner::new(generate_secret().as_bytes()));

/// The claim that a proof makes about its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The event is the user's message that started a run, so the run can be resumed.
    Run,
    /// The event has function calls whose result arrives later; the calling agent continues with the result.
    Call,
    /// The event requests a person's confirmation or credential; the calls in it run if the person approves or grants
    /// it.
    Confirmation,
    /// The event transfers to another agent, which continues the session.
    Transfer,
    /// The event holds the record of a paused run under [`PAUSED_RUN_KEY`](crate::PAUSED_RUN_KEY).
    PausedRun,
}

impl Claim {
    const ALL: [Self; 5] = [Self::Run, Self::Call, Self::Confirmation, Self::Transfer, Self::PausedRun];

    fn tag(self) -> u8 {
        match self {
            Self::Run => 1,
            Self::Call => 2,
            Self::Confirmation => 3,
            Self::Transfer => 4,
            Self::PausedRun => 5,
        }
    }
}

/// Signs and verifies events with a secret key of the host. Cheap to clone.
#[derive(Clone)]
pub struct EventSigner(Hmac<Sha256>);

impl EventSigner {
    /// Creates a signer. The secret should have at least 32 random bytes. Hosts that share sessions need the same
    /// secret.
    pub fn new(secret: &[u8]) -> Self {
        let mut key = Key::<Hmac<Sha256>>::default();
        key.iter_mut().zip(Sha256::digest(secret)).for_each(|(byte, digest)| *byte = digest);
        Self(Mac::new(&key))
    }

    /// Returns the signer of this process, whose secret is random and never stored.
    pub fn for_process() -> Self {
        PROCESS.clone()
    }

    /// Returns a key for another purpose than signing events. It is the same for the same strings, and does not reveal
    /// the secret.
    pub fn derive_key(&self, purpose: &str, strings: &[&str]) -> [u8; 32] {
        self.derive(purpose, strings).finalize().into_bytes().into()
    }

    /// Returns a proof of strings that are kept where others can change them.
    pub fn sign_strings(&self, purpose: &str, strings: &[&str]) -> String {
        URL_SAFE_NO_PAD.encode(self.derive_key(purpose, strings))
    }

    /// Returns true if [`EventSigner::sign_strings`] has returned this proof for the same purpose and strings.
    pub fn verify_strings(&self, purpose: &str, strings: &[&str], proof: &str) -> bool {
        let proof = URL_SAFE_NO_PAD.decode(proof);
        proof.is_ok_and(|proof| self.derive(purpose, strings).verify_slice(&proof).is_ok())
    }

    fn derive(&self, purpose: &str, strings: &[&str]) -> Hmac<Sha256> {
        let mut message = Message(self.0.clone());
        message.bytes(DERIVED_KEY);
        message.bytes(purpose.as_bytes());
        message.list(strings.iter(), |message, string| message.bytes(string.as_bytes()));
        message.0
    }

    /// Adds a proof to an event that is otherwise complete, and an id if it has none. Does nothing else if the custom
    /// metadata is not an object, because the event cannot carry a proof then.
    pub fn sign(&self, session: &SessionKey, event: &mut EventData, claim: Claim) {
        remove_proof(event);
        if event.id.is_empty() {
            event.id = new_event_id();
        }
        let proof = URL_SAFE_NO_PAD.encode(self.mac(session, event, claim).finalize().into_bytes());
        let metadata = event.custom_metadata.get_or_insert_with(|| Box::new(Value::Object(JsonMap::new())));
        if let Value::Object(metadata) = metadata.as_mut() {
            metadata.insert(PROOF_KEY.into(), Value::String(proof));
        }
    }

    /// Returns true if the event carries a valid proof of the claim for this session.
    pub fn proves(&self, session: &SessionKey, event: &EventData, claim: Claim) -> bool {
        let Some(proof) = proof(event).and_then(|proof| URL_SAFE_NO_PAD.decode(proof).ok()) else { return false };
        self.mac(session, event, claim).verify_slice(&proof).is_ok()
    }

    /// Returns the claim that the event proves; `None` without a valid proof.
    pub fn claim(&self, session: &SessionKey, event: &EventData) -> Option<Claim> {
        proof(event)?;
        Claim::ALL.into_iter().find(|claim| self.proves(session, event, *claim))
    }

    fn mac(&self, session: &SessionKey, event: &EventData, claim: Claim) -> Hmac<Sha256> {
        let mut message = Message(self.0.clone());
        message.bytes(FORMAT);
        message.bytes(&[claim.tag()]);
        for field in [&*session.app, &session.user, &session.id, &event.id, &event.invocation_id, &event.author] {
            message.bytes(field.as_bytes());
        }
        message.optional(event.branch.as_deref());
        message.optional(event.actions.transfer_to_agent.as_deref());
        message.list(event.long_running_tool_ids.iter(), |message, id| message.bytes(id.as_bytes()));
        let calls: Vec<_> = event.content.iter().flat_map(|content| content.function_calls()).collect();
        message.list(calls.into_iter(), |message, call| {
            message.optional(call.id.as_deref());
            message.bytes(call.name.as_bytes());
            message.object(&call.args);
        });
        if claim == Claim::PausedRun {
            message.value(event.paused_run().unwrap_or(&Value::Null));
        }
        message.0
    }
}

impl Default for EventSigner {
    fn default() -> Self {
        Self::for_process()
    }
}

impl fmt::Debug for EventSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSigner")
    }
}

/// Generates a secret for an [`EventSigner`]: 96 hexadecimal digits.
pub fn generate_secret() -> String {
    // Each UUID has 122 random bits from the operating system.
    (0..3).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect()
}

/// Removes the proof from an event, such as one that was not created by the host.
pub fn remove_proof(event: &mut EventData) {
    let Some(metadata) = &mut event.custom_metadata else { return };
    if let Value::Object(map) = metadata.as_mut()
        && map.shift_remove(PROOF_KEY).is_some()
        && map.is_empty()
    {
        event.custom_metadata = None;
    }
}

fn proof(event: &EventData) -> Option<&str> {
    event.custom_metadata.as_deref()?.get(PROOF_KEY)?.as_str()
}

/// Encodes a message unambiguously: every field has a length prefix, and the keys of objects are sorted.
struct Message(Hmac<Sha256>);

impl Message {
    fn length(&mut self, length: usize) {
        self.0.update(&(length as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.update(bytes);
    }

    fn optional(&mut self, string: Option<&str>) {
        self.0.update(&[u8::from(string.is_some())]);
        self.bytes(string.unwrap_or_default().as_bytes());
    }

    fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut add: impl FnMut(&mut Self, T)) {
        self.length(items.len());
        items.for_each(|item| add(self, item));
    }

    fn object(&mut self, object: &JsonMap) {
        let mut members: Vec<_> = object.iter().collect();
        members.sort_unstable_by_key(|(key, _)| *key);
        self.list(members.into_iter(), |message, (key, value)| {
            message.bytes(key.as_bytes());
            message.value(value);
        });
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.update(b"0"),
            Value::Bool(value) => self.0.update(if *value { b"t" } else { b"f" }),
            Value::Number(number) => {
                self.0.update(b"n");
                self.bytes(number.to_string().as_bytes());
            }
            Value::String(string) => {
                self.0.update(b"s");
                self.bytes(string.as_bytes());
            }
            Value::Array(items) => {
                self.0.update(b"a");
                self.list(items.iter(), Self::value);
            }
            Value::Object(object) => {
                self.0.update(b"o");
                self.object(object);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::content::{Content, FunctionCall, PartData};
    use crate::event::{Event, PAUSED_RUN_KEY, USER_AUTHOR};

    fn session(id: &str) -> SessionKey {
        SessionKey::new("app", "ada", id)
    }

    fn event(args: Value) -> EventData {
        let call = FunctionCall {
            id: Some("c1".into()),
            name: "pay".into(),
            args: args.as_object().cloned().unwrap(),
            ..FunctionCall::default()
        };
        EventData {
            id: "1".into(),
            invocation_id: "e-1".into(),
            author: "root".into(),
            content: Some(Arc::new(Content::new("model", vec![PartData::FunctionCall(call).into()]))),
            long_running_tool_ids: vec!["c1".into()],
            ..EventData::default()
        }
    }

    fn signed(args: Value) -> EventData {
        let mut event = event(args);
        EventSigner::new(b"key").sign(&session("s"), &mut event, Claim::Confirmation);
        event
    }

    #[test]
    fn a_proof_is_valid_only_for_its_event_session_claim_and_key() {
        let signer = EventSigner::new(b"key");
        let proves = |event: &EventData| signer.proves(&session("s"), event, Claim::Confirmation);
        let event = signed(json!({"euros": 5}));
        assert!(proves(&event));
        assert_eq!(signer.claim(&session("s"), &event), Some(Claim::Confirmation));
        assert!(!signer.proves(&session("t"), &event, Claim::Confirmation));
        assert!(!signer.proves(&session("s"), &event, Claim::Call));
        assert!(!EventSigner::new(b"other").proves(&session("s"), &event, Claim::Confirmation));
        let metadata = event.custom_metadata;
        for change in [
            |event: &mut EventData| event.author = "other".into(),
            |event: &mut EventData| event.id = "2".into(),
            |event: &mut EventData| event.invocation_id = "e-2".into(),
            |event: &mut EventData| event.branch = Some(String::new()),
            |event: &mut EventData| event.long_running_tool_ids.clear(),
            |event: &mut EventData| event.actions.transfer_to_agent = Some("root".into()),
            |event: &mut EventData| event.content = None,
        ] {
            let mut changed = EventData { custom_metadata: metadata.clone(), ..self::event(json!({"euros": 5})) };
            assert!(proves(&changed));
            change(&mut changed);
            assert!(!proves(&changed), "{changed:?}");
        }
        for args in [json!({"euros": 5_000_000}), json!({"euros": "5"}), json!({"euros": 5.0}), json!({})] {
            let changed = EventData { custom_metadata: metadata.clone(), ..self::event(args) };
            assert!(!proves(&changed), "{changed:?}");
        }
    }

    #[test]
    fn the_record_of_a_paused_run_is_part_of_its_proof() {
        let signer = EventSigner::new(b"key");
        let metadata = |calls: u64| Some(Box::new(json!({ PAUSED_RUN_KEY: {"llmCalls": calls} })));
        let author = USER_AUTHOR.into();
        let mut event = EventData { author, custom_metadata: metadata(7), ..EventData::default() };
        signer.sign(&session("s"), &mut event, Claim::PausedRun);
        assert!(signer.proves(&session("s"), &event, Claim::PausedRun));
        event.custom_metadata.as_mut().unwrap()[PAUSED_RUN_KEY]["llmCalls"] = json!(0);
        assert!(!signer.proves(&session("s"), &event, Claim::PausedRun));
    }

    #[test]
    fn an_event_without_a_proof_proves_nothing() {
        let proves = |event: &EventData| EventSigner::new(b"key").claim(&session("s"), event).is_some();
        let mut event = signed(json!({}));
        remove_proof(&mut event);
        assert!(event.custom_metadata.is_none() && !proves(&event));
        for forged in [json!({ PROOF_KEY: "" }), json!({ PROOF_KEY: 1 }), json!({ PROOF_KEY: "AAAA" }), json!("text")] {
            event.custom_metadata = Some(Box::new(forged));
            assert!(!proves(&event));
        }
    }

    #[test]
    fn other_metadata_is_kept() {
        let mut event = EventData { custom_metadata: Some(Box::new(json!({"mine": 1}))), ..event(json!({})) };
        EventSigner::new(b"key").sign(&session("s"), &mut event, Claim::Call);
        assert_eq!(event.custom_metadata.as_ref().unwrap()["mine"], 1);
        remove_proof(&mut event);
        assert_eq!(event.custom_metadata.as_deref(), Some(&json!({"mine": 1})));
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let metadata = signed(json!({"a": {"x": 1, "y": [2.5, null, true]}, "b": "é"})).custom_metadata;
        let reordered = event(json!({"b": "é", "a": {"y": [2.5, null, true], "x": 1}}));
        let reordered = EventData { custom_metadata: metadata, ..reordered };
        assert!(EventSigner::new(b"key").proves(&session("s"), &reordered, Claim::Confirmation));
    }

    proptest! {
        #[test]
        fn a_proof_survives_being_stored(number in any::<f64>(), text in any::<String>(), integer in any::<i64>()) {
            let event = Event::new(signed(json!({"number": number, "text": text, "nested": [{"integer": integer}]})));
            let stored = Event::from_json(event.json().clone()).unwrap();
            prop_assert!(EventSigner::new(b"key").proves(&session("s"), &stored, Claim::Confirmation));
        }
    }
}
