//! The public keys of an issuer (JSON Web Key Set), fetched on demand and cached.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use hatchery_core::sync::MutexExt;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::Client;
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde_json::Value;

/// The age from which keys are read again when a token needs one.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The age from which keys are no longer used if they cannot be read again.
const MAX_OUTAGE: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of consecutive reads of the keys, so that tokens with made-up key ids do not flood the issuer.
const MAX_BURST: u32 = 4;
const INTERVAL: Duration = Duration::from_secs(30);

const TIMEOUT: Duration = Duration::from_secs(10);

/// Largest key set.
const MAX_BYTES: usize = 1 << 20;

/// Reasons why there is no key for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyError {
    /// The issuer has no such key.
    Unknown,
    /// The keys of the issuer cannot be read.
    Unavailable,
}

/// The keys of an issuer.
pub(super) struct Jwks {
    url: String,
    client: Client,
    known: Mutex<Option<Arc<KeySet>>>,
    /// Held while keys are read.
    refresh: tokio::sync::Mutex<Budget>,
}

struct KeySet {
    keys: Vec<PublicKey>,
    read: Instant,
}

struct PublicKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl KeySet {
    /// Returns the key with this id, or the only one for the algorithm if a token names none.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let mut fitting = self.keys.iter().filter(|key| key.algorithm == algorithm);
        match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
        .map(|key| key.key.clone())
    }
}

/// The number of reads of keys that are left, which is refilled over time.
struct Budget {
    left: u32,
    refilled: Instant,
}

impl Budget {
    /// Takes one from the budget. Returns false if the budget is used up.
    fn take(&mut self, now: Instant) -> bool {
        let intervals = now.duration_since(self.refilled).as_secs() / INTERVAL.as_secs();
        if let Some(count) = u32::try_from(intervals).ok().filter(|count| *count > 0) {
            self.left = self.left.saturating_add(count).min(MAX_BURST);
            self.refilled = now;
        }
        let is_allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_allowed
    }
}

impl Jwks {
    pub(super) fn new(url: &str) -> Result<Self, String> {
        let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).build();
        let client = client.map_err(|error| format!("keys of the issuer cannot be read: {error}"))?;
        let budget = Budget { left: MAX_BURST, refilled: Instant::now() };
        Ok(Self { url: url.into(), client, known: Mutex::default(), refresh: tokio::sync::Mutex::new(budget) })
    }

    /// Returns the key for a token. Reads the keys of the issuer if there is none, or if they are old. While one caller
    /// reads them, other callers use an old key without waiting.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, KeyError> {
        let known = self.current_keys();
        let usable = known.as_ref().filter(|set| set.read.elapsed() < MAX_OUTAGE);
        let budget = match usable.and_then(|set| Some((set.read.elapsed(), set.find(id, algorithm)?))) {
            Some((age, key)) if age < MAX_AGE => return Ok(key),
            Some((_, key)) => match self.refresh.try_lock() {
                Ok(budget) => budget,
                Err(_) => return Ok(key),
            },
            None => self.refresh.lock().await,
        };
        self.read_again(known, budget).await;
        let known = self.current_keys().filter(|set| set.read.elapsed() < MAX_OUTAGE).ok_or(KeyError::Unavailable)?;
        known.find(id, algorithm).ok_or(KeyError::Unknown)
    }

    fn current_keys(&self) -> Option<Arc<KeySet>> {
        self.known.lock_unpoisoned().clone()
    }

    /// Fetches the key set that replaces the one that a caller has seen. Does nothing if it was replaced since, or is
    /// replaced too often.
    async fn read_again(&self, seen: Option<Arc<KeySet>>, mut budget: tokio::sync::MutexGuard<'_, Budget>) {
        let is_seen = match (&self.current_keys(), &seen) {
            (Some(known), Some(seen)) => Arc::ptr_eq(known, seen),
            (known, seen) => known.is_none() == seen.is_none(),
        };
        if !is_seen || !budget.take(Instant::now()) {
            return;
        }
        match self.read().await {
            Ok(keys) => {
                tracing::info!(url = self.url, keys = keys.len(), "the keys of the issuer of tokens were read");
                *self.known.lock_unpoisoned() = Some(Arc::new(KeySet { keys, read: Instant::now() }));
            }
            Err(reason) => {
                tracing::warn!(url = self.url, "the keys of the issuer of tokens cannot be read: {reason}");
            }
        }
    }

    async fn read(&self) -> Result<Vec<PublicKey>, String> {
        let describe = |error: reqwest::Error| {
            let error = error.without_url();
            std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source())
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(": ")
        };
        let response = self.client.get(&self.url).send().await.map_err(describe)?;
        if !response.status().is_success() {
            return Err(format!("the answer has the status {}", response.status()));
        }
        let (mut body, mut chunks) = (Vec::new(), response.bytes_stream());
        while let Some(chunk) = chunks.try_next().await.map_err(describe)? {
            if body.len() + chunk.len() > MAX_BYTES {
                return Err(format!("the answer has more than {MAX_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        let keys = parse(&body)?;
        if keys.is_empty() { Err("it has no key for RS256, ES256 or EdDSA".into()) } else { Ok(keys) }
    }
}

/// Returns the keys of a set that can verify tokens. Keys of other kinds are omitted.
fn parse(text: &[u8]) -> Result<Vec<PublicKey>, String> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let set: Set = serde_json::from_slice(text).map_err(|error| format!("it is not a key set: {error}"))?;
    Ok(set.keys.into_iter().filter_map(|key| public_key(serde_json::from_value(key).ok()?)).collect())
}

fn public_key(jwk: Jwk) -> Option<PublicKey> {
    let (algorithm, name) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        // Symmetric keys too: everybody who can read the key set could sign tokens with them.
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|own| own != name) {
        return None;
    }
    if jwk.common.public_key_use.as_ref().is_some_and(|use_| *use_ != PublicKeyUse::Signature) {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some(PublicKey { id: jwk.common.key_id, algorithm, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_four_times_at_once_and_then_once_per_interval() {
        let start = Instant::now();
        let mut budget = Budget { left: MAX_BURST, refilled: start };
        let taken = |budget: &mut Budget, now| (0..100).filter(|_| budget.take(now)).count();
        assert_eq!(taken(&mut budget, start), 4);
        assert_eq!(taken(&mut budget, start + INTERVAL / 2), 0);
        assert_eq!(taken(&mut budget, start + INTERVAL), 1);
        assert_eq!(taken(&mut budget, start + INTERVAL * 3), 2);
        assert_eq!(taken(&mut budget, start + INTERVAL * 100), 4);
    }

    #[test]
    fn only_public_keys_for_signatures_are_used() {
        let ed = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo""#;
        let text = format!(
            r#"{{"keys":[{ed},"kid":"a"}},{ed},"kid":"b","use":"enc"}},{ed},"kid":"c","alg":"RS256"}},
            {{"kty":"oct","kid":"d","k":"c2VjcmV0"}},{{"kty":"EC","crv":"P-521","x":"AA","y":"AA","kid":"e"}},
            {{"kty":"future","kid":"f"}},{{"kid":"g"}},7,{ed},"kid":"h","use":"sig","alg":"EdDSA"}}]}}"#
        );
        let ids: Vec<_> = parse(text.as_bytes()).unwrap().into_iter().filter_map(|key| key.id).collect();
        assert_eq!(ids, ["a", "h"]);
        assert!(parse(b"<html>").err().unwrap().starts_with("it is not a key set: "));
    }

    #[test]
    fn a_token_without_a_key_id_needs_a_single_key() {
        let key =
            |id: &str, algorithm| PublicKey { id: Some(id.into()), algorithm, key: DecodingKey::from_ed_der(b"x") };
        let set = |keys| KeySet { keys, read: Instant::now() };
        let one = set(vec![key("a", Algorithm::EdDSA), key("b", Algorithm::RS256)]);
        assert!(one.find(None, Algorithm::EdDSA).is_some() && one.find(None, Algorithm::ES256).is_none());
        assert!(one.find(Some("a"), Algorithm::EdDSA).is_some());
        assert!(one.find(Some("a"), Algorithm::RS256).is_none(), "a key is for one algorithm");
        let two = set(vec![key("a", Algorithm::EdDSA), key("b", Algorithm::EdDSA)]);
        assert!(two.find(None, Algorithm::EdDSA).is_none());
    }
}
