//! An MCP server on `rmcp` for tests, with tools, resources, a template, prompts, and a tool that requests a message of
//! a model. Serves one client over standard input and output; the tests serve it over HTTP too.
#![allow(clippy::unwrap_used, reason = "only tests use it")]
#![expect(deprecated, reason = "servers use sampling")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequestParams,
    CreateMessageResult, ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult, ListPromptsResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, Prompt, PromptArgument,
    PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    Role, SamplingMessage, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServiceExt};
use serde_json::{Value, json};

/// A server whose copies share their state, as the sessions of one server over HTTP do.
#[derive(Clone, Default)]
pub struct Library(Arc<State>);

#[derive(Default)]
struct State {
    /// True once the resource `news` exists.
    is_published: AtomicBool,
    /// How many calls of `wait` have begun.
    waiting: AtomicUsize,
    /// How many of them were cancelled.
    cancelled: AtomicUsize,
}

impl ServerHandler for Library {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = Arc::new(json!({"type": "object"}).as_object().unwrap().clone());
        let tool = |name: &'static str| Tool::new(name, format!("Does {name}."), schema.clone());
        Ok(ListToolsResult::with_all_items(
            ["summarize", "publish", "count", "wait", "waiting", "cancelled"].map(tool).into(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = request.arguments.unwrap_or_default();
        let text = match &*request.name {
            "summarize" => summarize(&args, &context).await,
            "publish" => {
                self.0.is_published.store(true, Ordering::Release);
                context.peer.notify_resource_list_changed().await.unwrap();
                "published".into()
            }
            "count" => {
                let steps = args.get("steps").and_then(Value::as_u64).unwrap_or(3);
                let token = context.meta.get_progress_token().unwrap();
                for step in 1..=steps {
                    let progress = ProgressNotificationParam::new(token.clone(), step as f64);
                    let progress = progress.with_total(steps as f64).with_message(format!("step {step}"));
                    context.peer.notify_progress(progress).await.unwrap();
                }
                "counted".into()
            }
            "wait" => {
                self.0.waiting.fetch_add(1, Ordering::Release);
                context.ct.cancelled().await;
                self.0.cancelled.fetch_add(1, Ordering::Release);
                "cancelled".into()
            }
            "waiting" => self.0.waiting.load(Ordering::Acquire).to_string(),
            "cancelled" => self.0.cancelled.load(Ordering::Acquire).to_string(),
            name => return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut resources = vec![
            Resource::new("memo:///rules", "rules")
                .with_description("The rules of the library.")
                .with_mime_type("text/plain"),
            Resource::new("memo:///logo", "logo"),
        ];
        if self.0.is_published.load(Ordering::Acquire) {
            resources.push(Resource::new("memo:///news", "news"));
        }
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let contents = match uri.strip_prefix("memo:///") {
            Some("rules") => ResourceContents::text("Be quiet.", uri),
            Some("logo") => ResourceContents::blob("aGVsbG8=", uri).with_mime_type("image/png"),
            Some("news") => ResourceContents::text("We are open.", uri),
            Some(path) if path.starts_with("shelf/") => {
                ResourceContents::text(format!("Books of {path}."), uri.clone())
            }
            _ => return Err(ErrorData::resource_not_found(format!("there is no {uri}"), None)),
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let language = PromptArgument::new("language").with_required(true);
        let prompt = Prompt::new("librarian", Some("How a librarian talks."), Some(vec![language]));
        Ok(ListPromptsResult::with_all_items(vec![prompt]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let language = request.arguments.unwrap_or_default().remove("language").unwrap_or_default();
        let text = format!("Speak {} in a low voice.", language.as_str().unwrap_or("any language"));
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into())
    }
}

/// Requests a message of the client's model. Returns it, or the error.
async fn summarize(args: &serde_json::Map<String, Value>, context: &RequestContext<RoleServer>) -> String {
    let text = args.get("text").and_then(Value::as_str).unwrap_or_default();
    let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(text)], 1000)
        .with_system_prompt("Summarize in one sentence.")
        .with_temperature(0.5);
    match context.peer.create_message(params).await {
        Ok(result) => {
            let message =
                result.message.content.into_vec().into_iter().filter_map(|block| Some(block.as_text()?.text.clone()));
            let is_cut_off = result.stop_reason.as_deref() == Some(CreateMessageResult::STOP_REASON_END_MAX_TOKEN);
            format!("{}: {}{}", result.model, message.collect::<String>(), if is_cut_off { " …" } else { "" })
        }
        Err(error) => error.to_string(),
    }
}

#[tokio::main]
#[allow(dead_code, reason = "the tests include this file")]
async fn main() {
    Library::default().serve(rmcp::transport::stdio()).await.unwrap().waiting().await.unwrap();
}
