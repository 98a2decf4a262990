//! Every sample's conversation, over every route.

use anyhow::{Result, ensure};
use hatchery_tests::{Conversation, Folder, Host, Route, event};
use tokio::sync::OnceCell;

use crate::cli::hatchery;

/// Set once the shared code cache contains the large components.
static COMPILED: OnceCell<()> = OnceCell::const_new();

/// Compiles all components of a folder without a timeout: the start of a host has one.
async fn compile(folder: &Folder, app: &str) -> Result<()> {
    let output = hatchery(&folder.served(), &["run", ".", app, "--message", "Hello"]).await?;
    ensure!(output.success, "{}", output.stderr);
    Ok(())
}

/// Plays all conversations of `sample-agents`. Returns the number of partial events.
async fn play(route: Route) -> Result<usize> {
    let folder = Folder::with_samples()?;
    let mut expected = folder.with_other_languages()?;
    let (has_library, has_notes) = (folder.with_library()?, folder.with_notes()?);
    if let Some(large) = expected.first() {
        COMPILED.get_or_try_init(|| compile(&folder, large)).await?;
    }
    expected.extend(["concierge", "data-analyst", "dice", "greeter", "help-desk", "trip-planner", "web-fetch"]);
    expected.extend(has_library.then_some("library"));
    expected.extend(has_notes.then_some("notes"));
    expected.sort_unstable();
    let host = Host::serve(&folder).await?;
    let conversations = Conversation::find(&folder.served())?;
    let mut apps = host.apps().await?;
    apps.sort();
    let mut talked_to: Vec<_> = conversations.iter().map(|(_, conversation)| conversation.app.clone()).collect();
    talked_to.sort();
    talked_to.dedup();
    ensure!(apps == talked_to, "each app of the samples has a conversation: {apps:?}, {talked_to:?}");
    ensure!(apps == expected, "{apps:?}");
    let mut pieces = 0;
    for (file, conversation) in conversations {
        let played = conversation.play(&host, route).await;
        pieces += played.map_err(|error| error.context(format!("{} over {route:?}", file.display())))?;
    }
    Ok(pieces)
}

#[tokio::test]
async fn every_sample_passes_its_conversation_over_run() -> Result<()> {
    assert_eq!(play(Route::Run).await?, 0, "without streaming there are no pieces");
    Ok(())
}

#[tokio::test]
async fn every_sample_passes_its_conversation_over_run_sse() -> Result<()> {
    assert_eq!(
        play(Route::Sse { path: "/run_sse", streaming: false }).await?,
        0,
        "without streaming there are no pieces"
    );
    Ok(())
}

#[tokio::test]
async fn every_sample_passes_its_conversation_over_run_sse_with_streaming() -> Result<()> {
    assert!(play(Route::Sse { path: "/run_sse", streaming: true }).await? > 0, "with streaming answers come in pieces");
    Ok(())
}

#[tokio::test]
async fn every_sample_passes_its_conversation_over_the_other_spelling_of_run_sse() -> Result<()> {
    assert!(play(Route::Sse { path: "/run-sse", streaming: true }).await? > 0, "with streaming answers come in pieces");
    Ok(())
}

#[tokio::test]
async fn every_sample_passes_its_conversation_over_run_live() -> Result<()> {
    assert!(play(Route::Live).await? > 0, "a live answer comes in pieces");
    Ok(())
}

#[tokio::test]
async fn the_concierge_calls_another_app_and_remembers_its_answer_in_the_next_session() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    let yesterday = host.ask("concierge", "yesterday", "Where is order 17?").await?;
    assert_eq!(event::texts(&yesterday).concat(), "The help desk says: Order 17 is on its way.");
    let desk = host.session("help-desk", "concierge").await?;
    assert_eq!(event::text_at(&desk, "/events/0/content/parts/0/text"), "Where is order 17?");
    // A run of the same session begins when the previous one is in the memory.
    host.run("concierge", "yesterday", "Hello").await?;
    let today = host.ask("concierge", "today", "What was said about order 17").await?;
    let text = event::texts(&today).concat();
    assert!(text.starts_with("I remember: ") && text.contains("Order 17 is on its way."), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_sample_with_a_remote_agent_passes_its_conversation() -> Result<()> {
    let dealer = Host::serve(&Folder::with_samples()?).await?;
    let folder = Folder::with_croupier(&dealer.url)?;
    let host = Host::serve(&folder).await?;
    let conversations = Conversation::find(&folder.served())?;
    ensure!(conversations.len() == 1, "{} conversations", conversations.len());
    for (_, conversation) in conversations {
        conversation.play(&host, Route::Run).await?;
    }
    Ok(())
}
