use minisign::KeyPair;

use super::*;
use crate::component::Digest;

const X: Subject<'_> = Subject { name: "x", version: None };

/// A secret key in a file, and its public key.
async fn pair(folder: &Path) -> (SigningKey, TrustedKey) {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let path = folder.join("key");
    std::fs::write(&path, pair.sk.to_box(None).unwrap().into_string()).unwrap();
    let key = SigningKey::read(&path, None).await.unwrap();
    (key, pair.pk.to_box().unwrap().into_string().parse().unwrap())
}

fn trust(policy: SignaturePolicy, key: &TrustedKey) -> Trust {
    Trust::new(policy, vec![key.clone()])
}

#[tokio::test]
async fn a_signature_of_a_trusted_key_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = pair(folder.path()).await;
    assert_eq!(secret.id(), public.id());
    let signature = secret.sign(X, b"bytes").unwrap();
    let trust = trust(SignaturePolicy::Require, &public);
    assert_eq!(trust.judge("x", X, b"bytes", Some(&signature)).unwrap(), Verdict::Signed(secret.id()));
}

#[tokio::test]
async fn other_bytes_are_refused_even_where_no_signature_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = pair(folder.path()).await;
    let signature = secret.sign(X, b"bytes").unwrap();
    let judge = |policy| trust(policy, &public).judge("x.wasm", X, b"other", Some(&signature));
    let error = judge(SignaturePolicy::Warn).unwrap_err().to_string();
    let id = secret.id();
    assert!(error.starts_with(&format!("x.wasm: expected what the key {id} has signed, found other bytes")), "{error}");
    assert_eq!(judge(SignaturePolicy::Off).unwrap(), Verdict::Unchecked);
    let error = trust(SignaturePolicy::Warn, &public).judge("x.wasm", X, b"", Some("nonsense")).unwrap_err();
    assert!(error.to_string().contains("expected a minisign signature, found something else"), "{error}");
}

#[tokio::test]
async fn who_is_not_trusted_and_who_has_not_signed_is_warned_of_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (stranger, _) = pair(folder.path()).await;
    let (_, public) = pair(folder.path()).await;
    let signature = stranger.sign(X, b"bytes").unwrap();
    for (signature, problem) in [
        (Some(signature.as_str()), format!("x.wasm is signed by the key {}, which is not trusted", stranger.id())),
        (None, "x.wasm is not signed".to_owned()),
    ] {
        let judge = |policy| trust(policy, &public).judge("x.wasm", X, b"bytes", signature);
        assert_eq!(judge(SignaturePolicy::Warn).unwrap(), Verdict::Unproven(problem.clone()));
        let error = judge(SignaturePolicy::Require).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{problem}, and signatures are required; ")), "{error}");
    }
}

#[test]
fn signatures_cannot_be_required_of_nobody() {
    let error = Trust::new(SignaturePolicy::Require, Vec::new()).check().unwrap_err().to_string();
    assert!(error.contains("no key is trusted; name one in `registry.trusted_keys`"), "{error}");
}

#[tokio::test]
async fn what_is_loaded_needs_a_signature_beside_it_only_where_one_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = pair(folder.path()).await;
    let path = folder.path().join("x.wasm");
    let admit = |policy| trust(policy, &public).admit(&path, b"bytes").map_err(|error| error.to_string());
    assert_eq!(admit(SignaturePolicy::Off), Ok(None));
    assert_eq!(admit(SignaturePolicy::Warn), Ok(Some(format!("{} is not signed", path.display()))));
    assert!(!Trust::new(SignaturePolicy::Warn, Vec::new()).judges_what_is_loaded(), "nobody signs for nobody");
    let error = admit(SignaturePolicy::Require).unwrap_err();
    assert!(error.starts_with(&format!("{} is not signed, and signatures are required", path.display())), "{error}");
    let signature = folder.path().join("x.wasm.minisig");
    std::fs::write(&signature, secret.sign(X, b"bytes").unwrap()).unwrap();
    assert_eq!(admit(SignaturePolicy::Require), Ok(None));
    std::fs::write(&signature, secret.sign(X, b"other").unwrap()).unwrap();
    assert!(admit(SignaturePolicy::Warn).unwrap_err().contains("found other bytes or a forged signature"));
}

#[tokio::test]
async fn a_signed_file_under_another_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = pair(folder.path()).await;
    let signature = secret.sign(Subject { name: "dice", version: Some("1.0") }, b"bytes").unwrap();
    let path = folder.path().join("vault.wasm");
    let admit = |trust: Trust| trust.admit_signed(&path, b"bytes", Some(&signature));
    let shown = path.display();
    let error = admit(trust(SignaturePolicy::Require, &public)).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{shown} is signed as `dice.wasm`, not as `vault.wasm`, and signatures are required; rename the file to `dice.wasm`, have it \
             signed under its new name, or allow it by `components.vault.signed_as: dice` of hatchery.yaml"
        )
    );
    let warning = admit(trust(SignaturePolicy::Warn, &public)).unwrap();
    assert_eq!(warning, Some(format!("{shown} is signed as `dice.wasm`, not as `vault.wasm`")));
    let allowed = Binding { signed_as: Some("dice".into()), ..Binding::default() };
    let bound = |policy, binding| trust(policy, &public).with_bindings([("vault".to_owned(), binding)].into());
    assert_eq!(admit(bound(SignaturePolicy::Require, allowed)).unwrap(), None);
    let pinned = Binding { sha256: Some(Digest::of(b"bytes")), ..Binding::default() };
    assert_eq!(admit(bound(SignaturePolicy::Require, pinned)).unwrap(), None);
}

#[tokio::test]
async fn an_older_version_is_no_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = pair(folder.path()).await;
    let signature = secret.sign(Subject { name: "x", version: Some("1.0") }, b"bytes").unwrap();
    let judge = |version| {
        let subject = Subject { name: "x", version };
        trust(SignaturePolicy::Require, &public).judge("registry/x", subject, b"bytes", Some(&signature))
    };
    assert_eq!(judge(Some("1.0")).unwrap(), Verdict::Signed(secret.id()));
    assert_eq!(judge(None).unwrap(), Verdict::Signed(secret.id()));
    let error = judge(Some("2.0")).unwrap_err().to_string();
    assert!(error.starts_with("registry/x is signed as version 1.0, not as 2.0, and signatures are"), "{error}");
}

#[tokio::test]
async fn what_is_said_of_one_component_holds_whatever_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let (one, public) = pair(folder.path()).await;
    let (other, other_public) = pair(folder.path()).await;
    let path = folder.path().join("x.wasm");
    let bound = |binding| {
        let keys = vec![public.clone(), other_public.clone()];
        Trust::new(SignaturePolicy::Off, keys).with_bindings([("x".to_owned(), binding)].into())
    };
    let pinned = bound(Binding { sha256: Some(Digest::of(b"good")), ..Binding::default() });
    assert!(pinned.judges_what_is_loaded());
    assert_eq!(pinned.admit(&path, b"good").unwrap(), None);
    assert_eq!(pinned.admit(&folder.path().join("y.wasm"), b"evil").unwrap(), None);
    let error = pinned.admit(&path, b"evil").unwrap_err().to_string();
    let expected = format!("x.wasm: expected {}, found {}; these bytes are", Digest::of(b"good"), Digest::of(b"evil"));
    assert!(
        error.contains(&expected) && error.ends_with("when `components.x.sha256` of hatchery.yaml says so"),
        "{error}"
    );

    let signed_by = bound(Binding { signed_by: Some(one.id()), ..Binding::default() });
    let admit = |signature: Option<&str>| signed_by.admit_signed(&path, b"good", signature);
    assert_eq!(admit(Some(&one.sign(X, b"good").unwrap())).unwrap(), None);
    assert!(admit(None).unwrap_err().to_string().contains("x.wasm is not signed, and signatures are required"));
    let error = admit(Some(&other.sign(X, b"good").unwrap())).unwrap_err().to_string();
    assert!(
        error.contains(&format!("is signed by the key {}, not by {}, and", other.id(), one.id()))
            && error.ends_with("the key is named by `components.x.signed_by` of hatchery.yaml"),
        "{error}"
    );
}

#[tokio::test]
async fn a_component_cannot_be_signed_by_a_key_that_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, _) = pair(folder.path()).await;
    let binding = Binding { signed_by: Some(secret.id()), ..Binding::default() };
    let trust = Trust::new(SignaturePolicy::Warn, Vec::new()).with_bindings([("x".to_owned(), binding)].into());
    assert_eq!(
        trust.check().unwrap_err().to_string(),
        format!(
            "components.x.signed_by: the key {} is not trusted; add its public key to `registry.trusted_keys` of hatchery.yaml",
            secret.id()
        )
    );
}

#[test]
fn key_ids_and_policies_are_written_as_they_are_read() {
    let id = KeyId::try_from("00E7620F1842B4E8".to_owned()).unwrap();
    assert_eq!(id.to_string(), "00E7620F1842B4E8");
    assert!(KeyId::try_from("E7".to_owned()).unwrap_err().contains("`E7` is no key id"));
    assert_eq!("require".parse(), Ok(SignaturePolicy::Require));
    assert!("on".parse::<SignaturePolicy>().unwrap_err().contains("`on` is neither `off` nor `warn` nor `require`"));
}

#[test]
fn what_is_no_public_key_is_named() {
    let error = "RWnonsense".parse::<TrustedKey>().unwrap_err().to_string();
    assert!(error.starts_with("RWnonsense: not a minisign public key"), "{error}");
}

#[tokio::test]
async fn what_is_no_secret_key_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let read = async || SigningKey::read(&path, None).await.map(|_| ()).unwrap_err().to_string();
    assert!(read().await.ends_with("key: there is no such file; `minisign -G` makes a key"));
    std::fs::write(&path, "untrusted comment: x\nRWnonsense\n").unwrap();
    assert!(read().await.contains("key: not a minisign secret key: "));
    let plain = KeyPair::generate_unencrypted_keypair().unwrap().sk.to_bytes();
    let encrypted = STANDARD.encode([plain.get(..2).unwrap(), b"Sc", plain.get(4..).unwrap()].concat());
    std::fs::write(&path, format!("untrusted comment: x\n{encrypted}\n")).unwrap();
    assert!(read().await.ends_with("key: the key has a password; set HATCHERY_SIGNING_PASSWORD"));
}
