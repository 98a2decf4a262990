//! Handing over, ending loops, and asking people.

use hatchery_guest::prelude::*;
use hatchery_guest::testing::{Host, Progress};
use hatchery_guest::{Credential, ToolConfirmation};

#[tool]
async fn hand_over(cx: ToolContext) -> Result<(), ToolError> {
    cx.transfer_to("support")?;
    cx.escalate()?;
    Ok(cx.skip_summarization()?)
}

#[callback(after_tool)]
async fn stop(_call: &ToolCall, _answer: &Value, cx: CallbackContext) -> Result<Option<Value>, Error> {
    cx.escalate()?;
    Ok(None)
}

#[agent]
async fn quitter(cx: AgentContext) -> Result<(), Error> {
    cx.escalate().await
}

#[test]
fn actions_of_a_tool_are_visible_until_the_next_run() {
    let host = Host::new().user_says("help");
    assert_eq!((host.transferred_to(), host.has_escalated(), host.has_skipped_summarization()), (None, false, false));
    host.call::<()>(hand_over, ()).unwrap();
    assert_eq!(host.transferred_to().as_deref(), Some("support"));
    assert!(host.has_escalated() && host.has_skipped_summarization());
    let host = host.user_says("more");
    assert_eq!((host.transferred_to(), host.has_escalated(), host.has_skipped_summarization()), (None, false, false));
}

#[test]
fn callbacks_and_agents_end_loops() {
    let host = Host::new();
    host.after_tool(stop, ToolCall::default(), json!({})).unwrap();
    assert!(host.has_escalated());
    let host = Host::new();
    assert_eq!(host.run(quitter)[0].actions.escalate, Some(true));
    assert!(host.has_escalated());
}

#[derive(Deserialize, JsonSchema)]
struct Transfer {
    euros: u32,
}

#[tool]
async fn send_money(transfer: Transfer, cx: ToolContext) -> Result<String, ToolError> {
    match cx.confirmation()? {
        Some(ToolConfirmation { confirmed: false, .. }) => Ok("refused".into()),
        Some(decision) => {
            assert_eq!(decision.hint, "Send 500 euros?");
            Ok(format!("sent {}", decision.payload_as::<u32>()?.unwrap_or(transfer.euros)))
        }
        None => {
            cx.request_confirmation(format!("Send {} euros?", transfer.euros), json!({ "limit": 100 }))?;
            Ok("waiting".into())
        }
    }
}

#[test]
fn a_person_is_asked_for_confirmation_and_decides() {
    let host = Host::new();
    let send = |host: &Host| host.call::<String>(send_money, json!({ "euros": 500 })).unwrap();
    assert_eq!((send(&host).as_str(), host.requested_confirmation().is_some()), ("waiting", true));
    let request = host.requested_confirmation().unwrap();
    assert_eq!((request.hint.as_str(), request.payload), ("Send 500 euros?", Some(json!({ "limit": 100 }))));
    let host = host.approve();
    assert_eq!(send(&host), "sent 500");
    // The decision usually comes with the user's next message.
    let host = host.user_says("yes").user_says("go on").approve_with(99);
    assert_eq!(host.requested_confirmation(), None);
    assert_eq!(send(&host), "sent 99");
    assert_eq!(send(&host.reject()), "refused");
}

#[tool]
async fn open_orders(cx: ToolContext) -> Result<Value, ToolError> {
    let shop = AuthConfig::api_key("X-Key").name("shop");
    let Some(credential) = cx.credential(&shop).await? else { return Ok(json!("waiting")) };
    let key = credential.api_key().unwrap_or_default().to_owned();
    if key == "revoked" {
        cx.refuse_credential(&shop, &credential).await?;
    }
    Ok(json!(key.to_uppercase()))
}

#[test]
fn a_user_is_asked_for_a_credential_and_again_after_it_is_refused() {
    let host = Host::new();
    let call = |host: &Host| host.call::<String>(open_orders, ()).unwrap();
    assert_eq!(call(&host), "waiting");
    let requested = host.requested_credential().unwrap();
    assert_eq!(requested["credentialKey"], "shop");
    let host = host.user_says("hi").user_says("again").grant_credential(Credential::from_api_key("k"));
    assert_eq!((call(&host).as_str(), host.requested_credential()), ("K", None));
    let host = host.grant_credential(Credential::from_api_key("revoked"));
    assert_eq!(call(&host), "REVOKED");
    assert_eq!(call(&host), "waiting");
}

#[derive(Deserialize, JsonSchema)]
struct Batch {
    loaves: u32,
}

#[tool]
async fn bake(batch: Batch, cx: ToolContext) -> Result<(), ToolError> {
    for loaf in 1..=batch.loaves {
        cx.report_progress(f64::from(loaf), f64::from(batch.loaves), format!("loaf {loaf}"))?;
    }
    cx.report_progress(0.5, None, "")?;
    assert_eq!(cx.report_progress(f64::NAN, None, "").unwrap_err().code, "BAD_INPUT");
    assert_eq!(cx.report_progress(1.0, f64::INFINITY, "").unwrap_err().code, "BAD_INPUT");
    Ok(())
}

#[test]
fn the_progress_of_a_tool_is_recorded() {
    let host = Host::new();
    host.call::<()>(bake, json!({ "loaves": 2 })).unwrap();
    let loaf = |loaf: f64| Progress { progress: loaf, total: Some(2.0), message: Some(format!("loaf {loaf}")) };
    assert_eq!(host.progress(), [loaf(1.0), loaf(2.0), Progress { progress: 0.5, total: None, message: None }]);
}

#[tool(confirm)]
async fn launch() -> &'static str {
    "launched"
}

#[test]
fn a_tool_with_confirmation_runs_once_a_person_agrees() {
    let host = Host::new();
    let error = host.call::<String>(launch, ()).unwrap_err();
    assert_eq!(error, ToolError::recoverable("This tool call requires confirmation, please approve or reject."));
    assert!(host.requested_confirmation().unwrap().hint.contains("launch()"));
    assert_eq!(
        host.clone().reject().call::<String>(launch, ()),
        Err(ToolError::recoverable("This tool call is rejected."))
    );
    assert_eq!(host.approve().call::<String>(launch, ()), Ok("launched".into()));
}
