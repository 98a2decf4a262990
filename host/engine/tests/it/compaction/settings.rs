//! Compaction in config files.

use super::*;

/// Knows one summarizer by name, and one that cannot be used.
struct Names;

impl Lookup for Names {
    fn tool(&self, _: &str) -> Result<Arc<dyn Tool>, LookupError> {
        unreachable!()
    }

    fn callback(&self, _: &str) -> Result<Arc<dyn hatchery_core::Callback>, LookupError> {
        unreachable!()
    }

    fn agent(&self, _: &str) -> Result<Agent, LookupError> {
        unreachable!()
    }

    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, LookupError> {
        let kind = ItemKind::Summarizer;
        match name {
            "notes/short" => Ok(Patient::new()),
            "notes/broken" => Err(LookupError::Broken { kind, name: name.into(), reason: "it trapped".into() }),
            _ => Err(LookupError::Unknown { kind, name: name.into(), known: vec!["notes/short".into()] }),
        }
    }
}

fn resolved(settings: Value) -> Result<CompactionConfig, String> {
    let settings: CompactionSettings = serde_json::from_value(settings).map_err(|error| error.to_string())?;
    settings.resolve(&Names).map_err(|error| error.to_string())
}

#[test]
fn settings_say_when_and_by_whom() {
    let both = resolved(json!({"interval": 3, "overlap": 0, "token_threshold": 50_000, "retention": 20})).unwrap();
    assert_eq!(both.sliding, Some(SlidingWindow { interval: NonZeroU32::new(3).unwrap(), overlap: 0 }));
    assert_eq!(both.tail, Some(TailRetention { token_threshold: 50_000, retention: 20 }));
    assert!(matches!(both.summarizer, SummarizerRef::Default));
    let by = |name: &str| resolved(json!({"interval": 1, "overlap": 1, "summarizer": name})).unwrap().summarizer;
    assert!(matches!(by("notes/short"), SummarizerRef::Custom(_)));
    assert!(
        matches!(by("gemini-2.5-flash"), SummarizerRef::Model(ModelRef::Named(name)) if name == "gemini-2.5-flash")
    );
}

#[test]
fn wrong_settings_are_refused_by_key() {
    let cases = [
        (json!({"interval": 3}), "compaction: `interval` needs `overlap` beside it"),
        (json!({"overlap": 3}), "compaction: `overlap` needs `interval` beside it"),
        (json!({"token_threshold": 3}), "compaction: `token_threshold` needs `retention` beside it"),
        (json!({"retention": 3}), "compaction: `retention` needs `token_threshold` beside it"),
        (json!({"interval": 0, "overlap": 1}), "compaction: `interval` is 0; it must be at least 1"),
        (json!({"interval": 1, "overlap": -1}), "compaction: `overlap` is -1; it must be at least 0"),
        (
            json!({"interval": 5_000_000_000_i64, "overlap": 1}),
            "compaction: `interval` is 5000000000; it must be at most 4294967295",
        ),
        (json!({"token_threshold": -1, "retention": 1}), "compaction: `token_threshold` is -1; it must be at least 1"),
        (json!({"token_threshold": 1, "retention": 0}), "compaction: `retention` is 0; it must be at least 1"),
        (
            json!({"summarizer": "notes/short"}),
            "compaction: nothing says when; give `interval` and `overlap`, or `token_threshold` and `retention`, or both",
        ),
        (
            json!({"interval": 1, "overlap": 1, "summarizer": "notes/broken"}),
            "compaction: `summarizer`: summarizer `notes/broken` cannot be used: it trapped",
        ),
    ];
    for (settings, expected) in cases {
        assert_eq!(resolved(settings).unwrap_err(), expected);
    }
    let error = resolved(json!({"every": 3})).unwrap_err();
    assert!(error.starts_with("unknown field `every`, expected one of `interval`"), "{error}");
}
