//! Tests of signing and verifying.

use minisign::KeyPair;

use super::*;
use crate::component::Digest;

const X: SignatureSubject<'_> = SignatureSubject { name: "x", version: None };

/// Creates a secret key in a file and its public key.
async fn key_pair(folder: &Path) -> (SigningKey, TrustedKey) {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let path = folder.join("key");
    std::fs::write(&path, pair.sk.to_box(None).unwrap().into_string()).unwrap();
    let key = SigningKey::read(&path, None).await.unwrap();
    (key, pair.pk.to_box().unwrap().into_string().parse().unwrap())
}

fn verifier(policy: SignaturePolicy, key: &TrustedKey) -> SignatureVerifier {
    SignatureVerifier::new(policy, vec![key.clone()])
}

#[tokio::test]
async fn a_signature_of_a_trusted_key_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = key_pair(folder.path()).await;
    assert_eq!(secret.id(), public.id());
    let signature = secret.sign(X, b"bytes").unwrap();
    let verifier = verifier(SignaturePolicy::Require, &public);
    assert_eq!(verifier.verify("x", X, b"bytes", Some(&signature)).unwrap(), SignatureStatus::Verified(secret.id()));
}

#[tokio::test]
async fn other_bytes_are_rejected_even_if_no_signature_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = key_pair(folder.path()).await;
    let signature = secret.sign(X, b"bytes").unwrap();
    let verify = |policy| verifier(policy, &public).verify("x.wasm", X, b"other", Some(&signature));
    let error = verify(SignaturePolicy::Warn).unwrap_err().to_string();
    let id = secret.id();
    assert!(
        error.starts_with(&format!("x.wasm: expected the content signed by the key {id}, found other bytes")),
        "{error}"
    );
    assert_eq!(verify(SignaturePolicy::Off).unwrap(), SignatureStatus::NotChecked);
    let error = verifier(SignaturePolicy::Warn, &public).verify("x.wasm", X, b"", Some("nonsense")).unwrap_err();
    assert!(error.to_string().contains("expected a minisign signature, found something else"), "{error}");
}

#[tokio::test]
async fn untrusted_and_missing_signatures_lead_to_a_warning_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (untrusted, _) = key_pair(folder.path()).await;
    let (_, public) = key_pair(folder.path()).await;
    let signature = untrusted.sign(X, b"bytes").unwrap();
    for (signature, problem) in [
        (Some(signature.as_str()), format!("x.wasm is signed by the key {}, which is not trusted", untrusted.id())),
        (None, "x.wasm is not signed".to_owned()),
    ] {
        let verify = |policy| verifier(policy, &public).verify("x.wasm", X, b"bytes", signature);
        assert_eq!(verify(SignaturePolicy::Warn).unwrap(), SignatureStatus::Unverified(problem.clone()));
        let error = verify(SignaturePolicy::Require).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{problem}, and signatures are required; ")), "{error}");
    }
}

#[test]
fn requiring_signatures_without_trusted_keys_is_an_error() {
    let error = SignatureVerifier::new(SignaturePolicy::Require, Vec::new()).check().unwrap_err().to_string();
    assert!(error.contains("no key is trusted; add a public key to `registry.trusted_keys`"), "{error}");
}

#[tokio::test]
async fn a_loaded_component_needs_a_signature_file_only_if_required() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = key_pair(folder.path()).await;
    let path = folder.path().join("x.wasm");
    let check = |policy| verifier(policy, &public).check_file(&path, b"bytes").map_err(|error| error.to_string());
    assert_eq!(check(SignaturePolicy::Off), Ok(None));
    assert_eq!(check(SignaturePolicy::Warn), Ok(Some(format!("{} is not signed", path.display()))));
    assert!(!SignatureVerifier::new(SignaturePolicy::Warn, Vec::new()).checks_loaded_components(), "no key is trusted");
    let error = check(SignaturePolicy::Require).unwrap_err();
    assert!(error.starts_with(&format!("{} is not signed, and signatures are required", path.display())), "{error}");
    let signature = folder.path().join("x.wasm.minisig");
    std::fs::write(&signature, secret.sign(X, b"bytes").unwrap()).unwrap();
    assert_eq!(check(SignaturePolicy::Require), Ok(None));
    std::fs::write(&signature, secret.sign(X, b"other").unwrap()).unwrap();
    assert!(check(SignaturePolicy::Warn).unwrap_err().contains("found other bytes or a forged signature"));
}

#[tokio::test]
async fn a_signed_file_with_another_name_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = key_pair(folder.path()).await;
    let signature = secret.sign(SignatureSubject { name: "dice", version: Some("1.0") }, b"bytes").unwrap();
    let path = folder.path().join("vault.wasm");
    let check = |verifier: SignatureVerifier| verifier.check_signed(&path, b"bytes", Some(&signature));
    let path_text = path.display();
    let error = check(verifier(SignaturePolicy::Require, &public)).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{path_text} is signed as `dice.wasm`, not as `vault.wasm`, and signatures are required; rename the file to `dice.wasm`, have it \
             signed under its new name, or allow it with `components.vault.signed_as: dice` of hatchery.yaml"
        )
    );
    let warning = check(verifier(SignaturePolicy::Warn, &public)).unwrap();
    assert_eq!(warning, Some(format!("{path_text} is signed as `dice.wasm`, not as `vault.wasm`")));
    let allowed = ExpectedIdentity { signed_as: Some("dice".into()), ..ExpectedIdentity::default() };
    let with_identity =
        |policy, identity| verifier(policy, &public).with_identities([("vault".to_owned(), identity)].into());
    assert_eq!(check(with_identity(SignaturePolicy::Require, allowed)).unwrap(), None);
    let pinned = ExpectedIdentity { sha256: Some(Digest::compute(b"bytes")), ..ExpectedIdentity::default() };
    assert_eq!(check(with_identity(SignaturePolicy::Require, pinned)).unwrap(), None);
}

#[tokio::test]
async fn a_signature_is_only_valid_for_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, public) = key_pair(folder.path()).await;
    let signature = secret.sign(SignatureSubject { name: "x", version: Some("1.0") }, b"bytes").unwrap();
    let verify = |version| {
        let subject = SignatureSubject { name: "x", version };
        verifier(SignaturePolicy::Require, &public).verify("registry/x", subject, b"bytes", Some(&signature))
    };
    assert_eq!(verify(Some("1.0")).unwrap(), SignatureStatus::Verified(secret.id()));
    assert_eq!(verify(None).unwrap(), SignatureStatus::Verified(secret.id()));
    let error = verify(Some("2.0")).unwrap_err().to_string();
    assert!(error.starts_with("registry/x is signed as version 1.0, not as 2.0, and signatures are"), "{error}");
}

#[tokio::test]
async fn an_expected_identity_is_enforced_regardless_of_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let (one, public) = key_pair(folder.path()).await;
    let (other, other_public) = key_pair(folder.path()).await;
    let path = folder.path().join("x.wasm");
    let with_identity = |identity| {
        let keys = vec![public.clone(), other_public.clone()];
        SignatureVerifier::new(SignaturePolicy::Off, keys).with_identities([("x".to_owned(), identity)].into())
    };
    let pinned =
        with_identity(ExpectedIdentity { sha256: Some(Digest::compute(b"good")), ..ExpectedIdentity::default() });
    assert!(pinned.checks_loaded_components());
    assert_eq!(pinned.check_file(&path, b"good").unwrap(), None);
    assert_eq!(pinned.check_file(&folder.path().join("y.wasm"), b"evil").unwrap(), None);
    let error = pinned.check_file(&path, b"evil").unwrap_err().to_string();
    let expected =
        format!("x.wasm: expected {}, found {}; to use this file", Digest::compute(b"good"), Digest::compute(b"evil"));
    assert!(
        error.contains(&expected) && error.ends_with("`components.x.sha256` of hatchery.yaml to its digest"),
        "{error}"
    );

    let signed_by = with_identity(ExpectedIdentity { signed_by: Some(one.id()), ..ExpectedIdentity::default() });
    let check = |signature: Option<&str>| signed_by.check_signed(&path, b"good", signature);
    assert_eq!(check(Some(&one.sign(X, b"good").unwrap())).unwrap(), None);
    assert!(check(None).unwrap_err().to_string().contains("x.wasm is not signed, and signatures are required"));
    let error = check(Some(&other.sign(X, b"good").unwrap())).unwrap_err().to_string();
    assert!(
        error.contains(&format!("is signed by the key {}, not by {}, and", other.id(), one.id()))
            && error.ends_with("the required key is in `components.x.signed_by` of hatchery.yaml"),
        "{error}"
    );
}

#[tokio::test]
async fn requiring_a_signature_by_an_untrusted_key_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, _) = key_pair(folder.path()).await;
    let identity = ExpectedIdentity { signed_by: Some(secret.id()), ..ExpectedIdentity::default() };
    let verifier =
        SignatureVerifier::new(SignaturePolicy::Warn, Vec::new()).with_identities([("x".to_owned(), identity)].into());
    assert_eq!(
        verifier.check().unwrap_err().to_string(),
        format!(
            "components.x.signed_by: the key {} is not trusted; add its public key to `registry.trusted_keys` of hatchery.yaml",
            secret.id()
        )
    );
}

#[test]
fn key_ids_and_policies_are_parsed() {
    let id = KeyId::try_from("00E7620F1842B4E8".to_owned()).unwrap();
    assert_eq!(id.to_string(), "00E7620F1842B4E8");
    for text in ["E7", "+0E7620F1842B4E8"] {
        let error = KeyId::try_from(text.to_owned()).unwrap_err();
        assert!(error.contains(&format!("`{text}` is not a key id")), "{error}");
    }
    assert_eq!("require".parse(), Ok(SignaturePolicy::Require));
    assert!("on".parse::<SignaturePolicy>().unwrap_err().contains("`on` is not `off`, `warn` or `require`"));
}

#[test]
fn invalid_public_keys_are_rejected() {
    let error = "RWnonsense".parse::<TrustedKey>().unwrap_err().to_string();
    assert!(error.starts_with("RWnonsense: not a minisign public key"), "{error}");
}

#[tokio::test]
async fn invalid_secret_keys_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let read = async || SigningKey::read(&path, None).await.map(|_| ()).unwrap_err().to_string();
    assert!(read().await.ends_with("key: the file does not exist; create a key with `minisign -G`"));
    std::fs::write(&path, "untrusted comment: x\nRWnonsense\n").unwrap();
    assert!(read().await.contains("key: not a minisign secret key: "));
    let plain = KeyPair::generate_unencrypted_keypair().unwrap().sk.to_bytes();
    let encrypted = STANDARD.encode([plain.get(..2).unwrap(), b"Sc", plain.get(4..).unwrap()].concat());
    std::fs::write(&path, format!("untrusted comment: x\n{encrypted}\n")).unwrap();
    assert!(read().await.ends_with("key: the key has a password; set HATCHERY_SIGNING_PASSWORD"));
}
