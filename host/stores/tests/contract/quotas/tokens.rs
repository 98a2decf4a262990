//! The quotas of the runs of a user, and of their tokens in a day.

use std::sync::Arc;

use hatchery_core::{Event, EventData, JsonMap, SessionImport, SessionKey, SessionService, Timestamp, UsageMetadata};
use hatchery_stores::quotas::QuotaSessions;
use hatchery_stores::{MemorySessions, Quota, SqliteSessions};

use super::{create, exceeded, with};

every_backend!(
    [
        active_runs_and_tokens_of_a_day_are_limited,
        the_tokens_of_a_fork_are_not_used_again,
        the_tokens_of_a_repeated_append_are_used_once,
        the_tokens_of_an_imported_event_are_used_on_its_day,
        the_tokens_of_deleted_events_stay_used,
        the_tokens_of_an_event_that_cannot_be_stored_are_used,
    ],
    memory(_folder) => Arc::new(MemorySessions::new()) as Arc<dyn SessionService>,
    sqlite(folder) => {
        Arc::new(SqliteSessions::open(folder.join("sessions.db")).await.unwrap()) as Arc<dyn SessionService>
    },
    postgres(_folder) => Arc::new(in_postgres!(sessions)) as Arc<dyn SessionService>,
);

fn with_quotas(stored: &Arc<dyn SessionService>, quotas: impl IntoIterator<Item = (Quota, u64)>) -> QuotaSessions {
    QuotaSessions::new(stored.clone(), with(quotas))
}

fn event_with_tokens(tokens: u64) -> Arc<Event> {
    let usage = UsageMetadata { total_token_count: Some(tokens), ..UsageMetadata::default() };
    Event::new(EventData { author: "a".into(), usage_metadata: Some(usage.into()), ..EventData::default() })
}

async fn active_runs_and_tokens_of_a_day_are_limited(stored: &Arc<dyn SessionService>) {
    let [ann, bob] = ["ann", "bob"].map(|user| SessionKey::new("app", user, "s"));
    let append = async |sessions: &QuotaSessions, key: &SessionKey, tokens: u64, timestamp: Timestamp| {
        let usage = UsageMetadata { total_token_count: Some(tokens), ..UsageMetadata::default() };
        let usage_metadata = Some(usage.into());
        let event = Event::new(EventData { author: "a".into(), timestamp, usage_metadata, ..EventData::default() });
        sessions.append(key, &event).await.unwrap();
    };
    let quotas = || [(Quota::UserTokensPerDay, 100), (Quota::UserRuns, 2)];
    let sessions = with_quotas(stored, quotas());
    for user in ["ann", "bob"] {
        create(&sessions, user, "s").await;
    }
    sessions.admit_run(&ann, 2).await.unwrap();
    assert_eq!(exceeded(sessions.admit_run(&ann, 3).await), "quotas.user_runs");
    let now = Timestamp::now();
    append(&sessions, &ann, 60, now).await;
    append(&sessions, &ann, 39, now).await;
    sessions.admit_run(&ann, 1).await.unwrap();
    append(&sessions, &ann, 1, now).await;
    let error = sessions.admit_run(&ann, 1).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a user of an app may use at most 100 tokens a day: try again tomorrow, UTC; raise `quotas.user_tokens_per_day` in \
         hatchery.yaml to allow more"
    );
    // Another process counts what is stored, and nothing of other days and users.
    const DAY: i64 = 24 * 3600 * 1_000_000;
    append(&sessions, &bob, 1000, Timestamp::from_micros(now.as_micros() - DAY)).await;
    let others = with_quotas(stored, quotas());
    assert_eq!(exceeded(others.admit_run(&ann, 1).await), "quotas.user_tokens_per_day");
    others.admit_run(&bob, 1).await.unwrap();
    with_quotas(stored, []).admit_run(&ann, 1000).await.unwrap();
}

async fn the_tokens_of_a_fork_are_not_used_again(stored: &Arc<dyn SessionService>) {
    let quotas = || [(Quota::UserTokensPerDay, 100)];
    let (sessions, key) = (with_quotas(stored, quotas()), SessionKey::new("app", "ann", "s"));
    create(&sessions, "ann", "s").await;
    let event = event_with_tokens(60);
    sessions.append(&key, &event).await.unwrap();
    sessions.fork(&key, 1, None).await.unwrap();
    // Another process counts what is stored.
    with_quotas(stored, quotas()).admit_run(&key, 1).await.unwrap();
}

async fn the_tokens_of_a_repeated_append_are_used_once(stored: &Arc<dyn SessionService>) {
    let sessions = with_quotas(stored, [(Quota::UserTokensPerDay, 100)]);
    let key = create(&sessions, "ann", "s").await;
    // The tokens of today are known from here on.
    sessions.admit_run(&key, 1).await.unwrap();
    let event = event_with_tokens(60);
    for _ in 0..2 {
        assert_eq!(sessions.append(&key, &event).await.unwrap(), 1);
    }
    sessions.admit_run(&key, 1).await.unwrap();
}

async fn the_tokens_of_an_imported_event_are_used_on_its_day(stored: &Arc<dyn SessionService>) {
    let sessions = with_quotas(stored, [(Quota::UserTokensPerDay, 100)]);
    let key = create(&sessions, "ann", "s").await;
    // The tokens of today are known from here on.
    sessions.admit_run(&key, 1).await.unwrap();
    let yesterday = Timestamp::from_micros(Timestamp::now().as_micros() - 24 * 3600 * 1_000_000);
    let usage = UsageMetadata { total_token_count: Some(1000), ..UsageMetadata::default() };
    let (author, usage_metadata) = ("a".into(), Some(usage.into()));
    let event = EventData { author, timestamp: yesterday, usage_metadata, ..EventData::default() };
    let import = SessionImport::new(JsonMap::new(), vec![event]).unwrap();
    import.store(&sessions, "app", "ann", Some("imported")).await.unwrap();
    sessions.admit_run(&key, 1).await.unwrap();
}

async fn the_tokens_of_deleted_events_stay_used(stored: &Arc<dyn SessionService>) {
    let sessions = with_quotas(stored, [(Quota::UserTokensPerDay, 100)]);
    let key = create(&sessions, "ann", "s").await;
    // The tokens of today are known from here on.
    sessions.admit_run(&key, 1).await.unwrap();
    sessions.append(&key, &event_with_tokens(60)).await.unwrap();
    sessions.rewind(&key, 0).await.unwrap();
    sessions.append(&key, &event_with_tokens(39)).await.unwrap();
    sessions.delete(&key).await.unwrap();
    // Lets the stored tokens be read again.
    sessions.append(&key, &event_with_tokens(0)).await.unwrap_err();
    create(&sessions, "ann", "s").await;
    sessions.admit_run(&key, 1).await.unwrap();
    sessions.append(&key, &event_with_tokens(1)).await.unwrap();
    assert_eq!(exceeded(sessions.admit_run(&key, 1).await), "quotas.user_tokens_per_day");
}

async fn the_tokens_of_an_event_that_cannot_be_stored_are_used(stored: &Arc<dyn SessionService>) {
    let sessions = with_quotas(stored, [(Quota::UserTokensPerDay, 100)]);
    let key = create(&sessions, "ann", "s").await;
    // The tokens of today are known from here on.
    sessions.admit_run(&key, 1).await.unwrap();
    // The session is deleted while the model answers.
    sessions.delete(&key).await.unwrap();
    sessions.append(&key, &event_with_tokens(100)).await.unwrap_err();
    create(&sessions, "ann", "s").await;
    assert_eq!(exceeded(sessions.admit_run(&key, 1).await), "quotas.user_tokens_per_day");
}
