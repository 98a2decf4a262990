//! Compaction settings in configuration files.

use hatchery_engine::CatalogSnapshot;
use hatchery_engine::compaction::ConfiguredCompaction;

use super::*;
use crate::logs::Warnings;

/// Has one summarizer, and one that cannot be used.
struct Summarizers;

impl ItemResolver for Summarizers {
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
            "notes/short" => Ok(BlockingSummarizer::new()),
            "notes/broken" => Err(ResolveError::Unusable { kind, name: name.into(), reason: "it trapped".into() }),
            _ => Err(ResolveError::Unknown { kind, name: name.into(), known: vec!["notes/short".into()] }),
        }
    }
}

/// Has no items.
struct EmptyResolver;

impl ItemResolver for EmptyResolver {
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

fn resolve(settings: Value) -> Result<CompactionConfig, String> {
    let settings: CompactionSettings = serde_json::from_value(settings).map_err(|error| error.to_string())?;
    settings.resolve(&Summarizers).map_err(|error| error.to_string())
}

#[test]
fn settings_are_resolved() {
    let both = resolve(json!({"interval": 3, "overlap": 0, "token_threshold": 50_000, "retention": 20})).unwrap();
    assert_eq!(both.sliding, Some(SlidingWindow { interval: NonZeroU32::new(3).unwrap(), overlap: 0 }));
    assert_eq!(both.tail, Some(TailRetention { token_threshold: 50_000, retention: 20 }));
    assert!(matches!(both.summarizer, SummarizerRef::Default));
    let summarizer = |name: &str| resolve(json!({"interval": 1, "overlap": 1, "summarizer": name})).unwrap().summarizer;
    assert!(matches!(summarizer("notes/short"), SummarizerRef::Custom(_)));
    assert!(
        matches!(summarizer("gemini-2.5-flash"), SummarizerRef::Model(ModelRef::Named(name)) if name == "gemini-2.5-flash")
    );
}

#[test]
fn invalid_settings_are_rejected_with_their_key() {
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
        assert_eq!(resolve(settings).unwrap_err(), expected);
    }
    let error = resolve(json!({"every": 3})).unwrap_err();
    assert!(error.starts_with("unknown field `every`, expected one of `interval`"), "{error}");
}

fn configured(summarizer: &str, resolver: impl ItemResolver + 'static) -> ConfiguredCompaction {
    let settings = json!({"interval": 1, "overlap": 0, "summarizer": summarizer});
    ConfiguredCompaction::new(
        "apps.x.compaction",
        serde_json::from_value(settings).unwrap(),
        snapshot(1, Arc::new(resolver)),
    )
}

fn snapshot(generation: u64, resolver: Arc<dyn ItemResolver>) -> CatalogSnapshot {
    CatalogSnapshot { generation, resolver }
}

#[test]
fn a_removed_summarizer_is_logged_once_and_not_replaced_by_a_model() {
    let warnings = Warnings::capture();
    let compaction = configured("notes/short", Summarizers);
    assert!(matches!(
        compaction.resolve(snapshot(1, Arc::new(Summarizers))).unwrap().summarizer,
        SummarizerRef::Custom(_)
    ));
    assert!(compaction.resolve(snapshot(2, Arc::new(EmptyResolver))).is_none());
    assert!(compaction.resolve(snapshot(2, Arc::new(EmptyResolver))).is_none());
    assert!(compaction.resolve(snapshot(3, Arc::new(EmptyResolver))).is_none());
    let [warning] = &*warnings.lines() else { panic!("{:?}", warnings.lines()) };
    assert!(
        warning.contains("apps.x.compaction: `summarizer`: summarizer `notes/short` not found")
            && warning.contains("; sessions are not compacted until it is available"),
        "{warning}"
    );
    assert!(matches!(
        compaction.resolve(snapshot(4, Arc::new(Summarizers))).unwrap().summarizer,
        SummarizerRef::Custom(_)
    ));
}

#[test]
fn a_name_means_a_model_until_a_summarizer_with_this_name_is_loaded() {
    let compaction = configured("notes/short", EmptyResolver);
    let summarizer = |generation, resolver: Arc<dyn ItemResolver>| {
        compaction.resolve(snapshot(generation, resolver)).unwrap().summarizer
    };
    assert!(matches!(summarizer(2, Arc::new(EmptyResolver)), SummarizerRef::Model(_)));
    assert!(matches!(summarizer(3, Arc::new(Summarizers)), SummarizerRef::Custom(_)));
}
