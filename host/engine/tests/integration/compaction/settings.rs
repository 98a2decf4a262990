//! Compaction in config files.

use hatchery_engine::CatalogSnapshot;
use hatchery_engine::compaction::ConfiguredCompaction;

use super::*;
use crate::logs::Warnings;

/// Knows one summarizer by name, and one that cannot be used.
struct Names;

impl ItemResolver for Names {
    fn tool(&self, _: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        unreachable!()
    }

    fn callback(&self, _: &str) -> Result<Arc<dyn hatchery_core::Callback>, ResolveError> {
        unreachable!()
    }

    fn agent(&self, _: &str) -> Result<Agent, ResolveError> {
        unreachable!()
    }

    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, ResolveError> {
        let kind = ItemKind::Summarizer;
        match name {
            "notes/short" => Ok(Patient::new()),
            "notes/broken" => Err(ResolveError::Unusable { kind, name: name.into(), reason: "it trapped".into() }),
            _ => Err(ResolveError::Unknown { kind, name: name.into(), known: vec!["notes/short".into()] }),
        }
    }
}

/// Nothing is loaded.
struct Nothing;

impl ItemResolver for Nothing {
    fn tool(&self, _: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        unreachable!()
    }

    fn callback(&self, _: &str) -> Result<Arc<dyn hatchery_core::Callback>, ResolveError> {
        unreachable!()
    }

    fn agent(&self, _: &str) -> Result<Agent, ResolveError> {
        unreachable!()
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
        (json!({"interval": 3}), "`interval` requires `overlap`"),
        (json!({"overlap": 3}), "`overlap` requires `interval`"),
        (json!({"token_threshold": 3}), "`token_threshold` requires `retention`"),
        (json!({"retention": 3}), "`retention` requires `token_threshold`"),
        (json!({"interval": 0, "overlap": 1}), "`interval` is 0; it must be at least 1"),
        (json!({"interval": 1, "overlap": -1}), "`overlap` is -1; it must be at least 0"),
        (
            json!({"interval": 5_000_000_000_i64, "overlap": 1}),
            "`interval` is 5000000000; it must be at most 4294967295",
        ),
        (json!({"token_threshold": -1, "retention": 1}), "`token_threshold` is -1; it must be at least 1"),
        (json!({"token_threshold": 1, "retention": 0}), "`retention` is 0; it must be at least 1"),
        (
            json!({"summarizer": "notes/short"}),
            "no strategy is set; set `interval` and `overlap`, or `token_threshold` and `retention`, or both",
        ),
        (
            json!({"interval": 1, "overlap": 1, "summarizer": "notes/broken"}),
            "`summarizer`: summarizer `notes/broken` cannot be used: it trapped",
        ),
    ];
    for (settings, expected) in cases {
        assert_eq!(resolved(settings).unwrap_err(), expected);
    }
    let error = resolved(json!({"every": 3})).unwrap_err();
    assert!(error.starts_with("unknown field `every`, expected one of `interval`"), "{error}");
}

fn configured(summarizer: &str, lookup: impl ItemResolver + 'static) -> ConfiguredCompaction {
    let settings = json!({"interval": 1, "overlap": 0, "summarizer": summarizer});
    ConfiguredCompaction::new(
        "apps.x.compaction",
        serde_json::from_value(settings).unwrap(),
        snapshot(1, Arc::new(lookup)),
    )
}

fn snapshot(generation: u64, resolver: Arc<dyn ItemResolver>) -> CatalogSnapshot {
    CatalogSnapshot { generation, resolver }
}

#[test]
fn a_summarizer_that_goes_away_is_warned_of_once_and_no_model_takes_its_place() {
    let warnings = Warnings::heard();
    let compaction = configured("notes/short", Names);
    assert!(matches!(compaction.resolve(snapshot(1, Arc::new(Names))).unwrap().summarizer, SummarizerRef::Custom(_)));
    assert!(compaction.resolve(snapshot(2, Arc::new(Nothing))).is_none());
    assert!(compaction.resolve(snapshot(2, Arc::new(Nothing))).is_none());
    assert!(compaction.resolve(snapshot(3, Arc::new(Nothing))).is_none());
    let [warning] = &*warnings.lines() else { panic!("{:?}", warnings.lines()) };
    assert!(
        warning.contains("apps.x.compaction: `summarizer`: summarizer `notes/short` not found")
            && warning.contains("; sessions are not compacted before it is back"),
        "{warning}"
    );
    assert!(matches!(compaction.resolve(snapshot(4, Arc::new(Names))).unwrap().summarizer, SummarizerRef::Custom(_)));
}

#[test]
fn a_model_s_name_stays_one_until_a_summarizer_of_this_name_is_loaded() {
    let compaction = configured("notes/short", Nothing);
    let summarizer = |generation, lookup: Arc<dyn ItemResolver>| {
        compaction.resolve(snapshot(generation, lookup)).unwrap().summarizer
    };
    assert!(matches!(summarizer(2, Arc::new(Nothing)), SummarizerRef::Model(_)));
    assert!(matches!(summarizer(3, Arc::new(Names)), SummarizerRef::Custom(_)));
}
