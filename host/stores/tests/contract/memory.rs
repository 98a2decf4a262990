//! Memory services.

use std::sync::Arc;

use hatchery_core::{
    Content, Event, EventData, FunctionCall, MemoryService, Part, PartData, Session, SessionKey, State, Timestamp,
};
use serde_json::json;

every_backend!(
    [
        a_message_is_found_with_author_and_time,
        case_and_punctuation_do_not_matter,
        digits_are_words,
        scripts_other_than_latin_are_found,
        whole_words_are_compared,
        a_query_without_words_finds_nothing,
        more_matching_words_come_first_then_newer_entries,
        a_repeated_word_of_the_query_counts_once,
        parts_without_text_are_ignored,
        thoughts_are_not_indexed,
        adding_a_session_again_replaces_it,
        added_events_extend_a_session,
        an_event_is_added_once,
        users_and_apps_have_their_own_memory,
        at_most_a_hundred_entries_are_found,
        a_deleted_session_is_not_found,
        the_longest_words_of_a_long_query_are_found,
        text_with_the_syntax_of_queries_is_text,
        sessions_and_their_entries_are_listed,
    ],
    keyword(_folder) => hatchery_stores::KeywordMemory::new(),
    keyword_with_embedder(_folder) =>
        hatchery_stores::KeywordMemory::new().with_similarity(crate::support::ConceptEmbedder::search()),
    sqlite_with_embedder(folder) =>
        hatchery_stores::SqliteMemory::open(folder.join("memory.db")).await.unwrap().with_similarity(crate::support::ConceptEmbedder::search()),
    sqlite(folder) => hatchery_stores::SqliteMemory::open(folder.join("memory.db")).await.unwrap(),
    encrypted_keyword(_folder) => crate::support::encrypted_messages(hatchery_stores::KeywordMemory::new()),
    encrypted_sqlite(folder) =>
        crate::support::encrypted_messages(hatchery_stores::SqliteMemory::open(folder.join("memory.db")).await.unwrap()),
    encrypted_postgres(_folder) => crate::support::encrypted_messages(in_postgres!(memory)),
    encrypted_firestore(_folder) => crate::support::encrypted_messages(emulated!(memory)),
    firestore(_folder) => emulated!(memory),
    postgres(_folder) => in_postgres!(memory),
    postgres_with_text_search(_folder) => in_postgres!(memory_with_text_search),
);

fn message(author: &str, micros: i64, parts: Vec<Part>) -> Arc<Event> {
    Event::new(EventData {
        author: author.into(),
        content: Some(Arc::new(Content::new("user", parts))),
        timestamp: Timestamp::from_micros(micros),
        ..EventData::default()
    })
}

fn session_of(key: SessionKey, events: impl IntoIterator<Item = Arc<Event>>) -> Session {
    Session {
        key,
        state: State::default(),
        events: events.into_iter().collect(),
        revision: 0,
        created: Timestamp::default(),
        last_update_time: Timestamp::default(),
    }
}

/// Adds a session of ann with one message per text, a microsecond apart.
async fn remember(memory: &dyn MemoryService, id: &str, texts: &[&str]) {
    let events = texts.iter().zip(1..).map(|(text, micros)| message("user", micros, vec![Part::text(*text)]));
    memory.add_session(&session_of(SessionKey::new("app", "ann", id), events)).await.unwrap();
}

async fn search(memory: &dyn MemoryService, query: &str) -> Vec<String> {
    let entries = memory.search("app", "ann", query).await.unwrap();
    entries.iter().map(|entry| entry.content.text()).collect()
}

async fn a_message_is_found_with_author_and_time(memory: &dyn MemoryService) {
    let event = message("dice", 1_700_000_000_250_000, vec![Part::text("You rolled a six")]);
    memory.add_session(&session_of(SessionKey::new("app", "ann", "s1"), [event.clone()])).await.unwrap();
    let entries = memory.search("app", "ann", "rolled").await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(&entries[0].content, event.content.as_deref().unwrap());
    assert_eq!(entries[0].author.as_deref(), Some("dice"));
    assert_eq!(serde_json::to_value(&entries[0]).unwrap()["timestamp"], json!(1_700_000_000.25));
}

async fn case_and_punctuation_do_not_matter(memory: &dyn MemoryService) {
    remember(memory, "s1", &["Well, hello? (Said \"Jack\".)"]).await;
    for query in ["hello", "HELLO!", "hello?", "jack", "'well'", "nothing,hello"] {
        assert_eq!(search(memory, query).await.len(), 1, "{query}");
    }
}

async fn digits_are_words(memory: &dyn MemoryService) {
    remember(memory, "s1", &["Room 101, code A7"]).await;
    assert_eq!(search(memory, "101").await.len(), 1);
    assert_eq!(search(memory, "a7").await.len(), 1);
    assert!(search(memory, "10").await.is_empty());
}

async fn scripts_other_than_latin_are_found(memory: &dyn MemoryService) {
    remember(memory, "s1", &["Привет, МИР", "東京タワーに行きました", "Ärger und Maße", "สวัสดีครับ"]).await;
    assert_eq!(search(memory, "привет").await, ["Привет, МИР"]);
    assert_eq!(search(memory, "東京").await, ["東京タワーに行きました"]);
    assert_eq!(search(memory, "行").await, ["東京タワーに行きました"]);
    assert_eq!(search(memory, "ärger").await, ["Ärger und Maße"]);
    assert_eq!(search(memory, "สวัสดี").await, ["สวัสดีครับ"]);
    assert!(search(memory, "京東").await.is_empty());
}

async fn whole_words_are_compared(memory: &dyn MemoryService) {
    remember(memory, "s1", &["concatenate"]).await;
    assert!(search(memory, "cat").await.is_empty());
}

async fn a_query_without_words_finds_nothing(memory: &dyn MemoryService) {
    remember(memory, "s1", &["hello", "?!"]).await;
    assert!(search(memory, "").await.is_empty());
    assert!(search(memory, " ?! ").await.is_empty());
}

async fn more_matching_words_come_first_then_newer_entries(memory: &dyn MemoryService) {
    remember(memory, "s1", &["red apples", "red and green apples", "green leaves", "red", "blue"]).await;
    assert_eq!(search(memory, "green red apples").await, ["red and green apples", "red apples", "red", "green leaves"]);
}

async fn a_repeated_word_of_the_query_counts_once(memory: &dyn MemoryService) {
    remember(memory, "s1", &["red apples", "green green green"]).await;
    assert_eq!(search(memory, "green Green green red apples").await, ["red apples", "green green green"]);
}

async fn parts_without_text_are_ignored(memory: &dyn MemoryService) {
    let call: Part = PartData::FunctionCall(FunctionCall { name: "roll".into(), ..FunctionCall::default() }).into();
    let parts = vec![call.clone(), Part::text("rolling"), Part::text("dice"), Part::default()];
    let events = [message("user", 1, parts.clone()), message("user", 2, vec![call]), Event::new(EventData::default())];
    memory.add_session(&session_of(SessionKey::new("app", "ann", "s1"), events)).await.unwrap();
    assert!(search(memory, "roll").await.is_empty());
    assert!(search(memory, "rollingdice").await.is_empty());
    let entries = memory.search("app", "ann", "dice").await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].content.parts, parts);
}

async fn thoughts_are_not_indexed(memory: &dyn MemoryService) {
    let thought = Part { thought: true, ..Part::text("secretly") };
    let events = [message("model", 1, vec![thought, Part::text("openly")])];
    memory.add_session(&session_of(SessionKey::new("app", "ann", "s1"), events)).await.unwrap();
    assert!(search(memory, "secretly").await.is_empty());
    assert_eq!(search(memory, "openly").await.len(), 1);
}

async fn adding_a_session_again_replaces_it(memory: &dyn MemoryService) {
    remember(memory, "s1", &["old apples"]).await;
    remember(memory, "s2", &["other apples"]).await;
    remember(memory, "s1", &["new apples", "newest apples"]).await;
    assert!(search(memory, "old").await.is_empty());
    assert_eq!(search(memory, "apples").await.len(), 3);
    remember(memory, "s1", &[]).await;
    assert_eq!(search(memory, "apples").await, ["other apples"]);
}

async fn added_events_extend_a_session(memory: &dyn MemoryService) {
    remember(memory, "s1", &["old apples"]).await;
    for (id, text) in [("s1", "new apples"), ("s2", "other apples")] {
        let event = message("user", 9, vec![Part::text(text)]);
        memory.add_events(&SessionKey::new("app", "ann", id), &[event]).await.unwrap();
    }
    assert_eq!(search(memory, "apples").await.len(), 3);
    assert!(memory.search("app", "bob", "apples").await.unwrap().is_empty());
}

async fn an_event_is_added_once(memory: &dyn MemoryService) {
    let key = SessionKey::new("app", "ann", "s1");
    let (first, second) =
        (message("user", 1, vec![Part::text("apples")]), message("user", 2, vec![Part::text("pears")]));
    memory.add_session(&session_of(key.clone(), [first.clone()])).await.unwrap();
    memory.add_events(&key, &[first.clone(), second.clone(), second.clone()]).await.unwrap();
    memory.add_events(&key, &[first, second]).await.unwrap();
    assert_eq!(search(memory, "apples pears").await, ["pears", "apples"]);
}

async fn users_and_apps_have_their_own_memory(memory: &dyn MemoryService) {
    for (app, user) in [("app", "ann"), ("app", "bob"), ("other", "ann")] {
        let event = message("user", 1, vec![Part::text(format!("apples of {user} in {app}"))]);
        memory.add_session(&session_of(SessionKey::new(app, user, "s1"), [event])).await.unwrap();
    }
    assert_eq!(search(memory, "apples").await, ["apples of ann in app"]);
    assert!(memory.search("app", "nobody", "apples").await.unwrap().is_empty());
}

async fn at_most_a_hundred_entries_are_found(memory: &dyn MemoryService) {
    let texts: Vec<String> = (0..101).map(|number| format!("apple {number}")).collect();
    remember(memory, "s1", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let found = search(memory, "apple").await;
    assert_eq!(found.len(), 100);
    assert_eq!((found[0].as_str(), found[99].as_str()), ("apple 100", "apple 1"));
}

async fn a_deleted_session_is_not_found(memory: &dyn MemoryService) {
    remember(memory, "s1", &["red apples"]).await;
    remember(memory, "s2", &["green apples"]).await;
    memory.delete_session(&SessionKey::new("app", "ann", "s1")).await.unwrap();
    for (app, user, id) in [("app", "ann", "s1"), ("app", "bob", "s2"), ("other", "ann", "s2")] {
        memory.delete_session(&SessionKey::new(app, user, id)).await.unwrap();
    }
    assert_eq!(search(memory, "apples").await, ["green apples"]);
    remember(memory, "s1", &["blue apples"]).await;
    assert_eq!(search(memory, "red blue").await, ["blue apples"]);
}

async fn the_longest_words_of_a_long_query_are_found(memory: &dyn MemoryService) {
    remember(memory, "s1", &["apples", "zz"]).await;
    let many: String = (0..256).map(|number| format!("word{number} ")).collect();
    assert_eq!(search(memory, &format!("{many} apples")).await, ["apples"]);
    assert!(search(memory, &format!("{many} zz")).await.is_empty());
    assert_eq!(search(memory, "zz").await, ["zz"]);
}

async fn text_with_the_syntax_of_queries_is_text(memory: &dyn MemoryService) {
    remember(memory, "s1", &["apples AND pears", "words: \"quoted\" OR NOT near* _1"]).await;
    for query in ["and", "\"apples\" NEAR(pears", "words:apples*", "^apples", "' OR 1=1 apples"] {
        assert!(search(memory, query).await.contains(&"apples AND pears".into()), "{query}");
    }
    assert!(search(memory, "_2").await.is_empty());
    assert_eq!(search(memory, "near").await.len(), 1);
}

async fn sessions_and_their_entries_are_listed(memory: &dyn MemoryService) {
    remember(memory, "old", &["one", "two"]).await;
    remember(memory, "new", &["one", "two", "three"]).await;
    remember(memory, "empty", &[]).await;
    let other = SessionKey::new("app", "bob", "his");
    memory.add_session(&session_of(other.clone(), [message("user", 9, vec![Part::text("mine")])])).await.unwrap();
    let list = async |app, user| {
        let sessions = memory.sessions(app, user).await.unwrap();
        sessions.iter().map(|it| (it.key.to_string(), it.entries, it.newest.as_micros())).collect::<Vec<_>>()
    };
    let key = |user: &str, id: &str| SessionKey::new("app", user, id).to_string();
    let anns = [(key("ann", "new"), 3, 3), (key("ann", "old"), 2, 2)];
    assert_eq!(list(Some("app"), Some("ann")).await, anns);
    assert_eq!(list(None, None).await, [&[(other.to_string(), 1, 9)], &anns[..]].concat());
    assert!(list(Some("other"), None).await.is_empty() && list(None, Some("nobody")).await.is_empty());
    let entries = memory.entries(&SessionKey::new("app", "ann", "new")).await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.content.text()).collect::<Vec<_>>(), ["one", "two", "three"]);
    assert!(memory.entries(&SessionKey::new("app", "ann", "nowhere")).await.unwrap().is_empty());
}
