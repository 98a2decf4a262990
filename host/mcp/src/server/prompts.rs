//! Prompts for clients: messages with placeholders for arguments, from the settings.

use std::collections::BTreeMap;

use hatchery_core::{InputClient, InputError, InputKind, InputRequest, InputResponse, JsonMap};
use rmcp::RoleServer;
use rmcp::model::{
    AudioContent, ContentBlock, EmbeddedResource, ErrorData, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, ImageContent, InputRequiredResult, Prompt, PromptArgument, PromptMessage, ResourceContents, Role,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::McpService;
use super::input::CallInput;
use super::session::has_every_app;

/// The key of the request for arguments that a client has omitted.
const ARGUMENTS: &str = "arguments";

/// A prompt for clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExposedPrompt {
    /// A text for people.
    pub description: String,
    /// The arguments in order.
    pub arguments: Vec<PromptParameter>,
    /// The messages. `{NAME}` in their texts and URIs is replaced by an argument.
    pub messages: Vec<ExposedMessage>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptParameter {
    pub name: String,
    /// A text for people.
    pub description: String,
    /// Whether the prompt needs it. Placeholders of omitted optional arguments become empty.
    pub is_required: bool,
    /// The values that are suggested. Others are accepted too.
    pub values: Vec<String>,
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedMessage {
    /// True for an earlier message of the model.
    pub is_assistant: bool,
    pub content: PromptContent,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptContent {
    Text(String),
    /// A resource of this host, by its URI.
    Resource(String),
}

impl ExposedPrompt {
    fn describe(&self, name: &str) -> Prompt {
        let argument = |parameter: &PromptParameter| {
            PromptArgument::new(&parameter.name)
                .with_description(&parameter.description)
                .with_required(parameter.is_required)
        };
        Prompt::new(name, Some(&self.description), Some(self.arguments.iter().map(argument).collect()))
    }

    /// Replaces placeholders by arguments. Braces around other texts stay.
    fn fill(&self, text: &str, values: &JsonMap) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let placeholder =
                after.split_once('}').filter(|(name, _)| self.arguments.iter().any(|it| it.name == *name));
            match placeholder {
                Some((name, after)) => {
                    filled.push_str(values.get(name).and_then(Value::as_str).unwrap_or_default());
                    rest = after;
                }
                None => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        filled + rest
    }
}

impl McpService {
    /// Returns the prompts.
    pub(super) fn prompts(&self, context: &RequestContext<RoleServer>) -> Vec<Prompt> {
        let settings = self.0.settings.load();
        let prompts = settings.exposure.prompts.iter().filter(|_| has_every_app(context));
        prompts.map(|(name, prompt)| prompt.describe(name)).collect()
    }

    /// Returns the prompt of this name. Prompts belong to no app, so they are for clients that may use all of them.
    fn find_prompt(&self, name: &str, context: &RequestContext<RoleServer>) -> Option<ExposedPrompt> {
        self.0.settings.load().exposure.prompts.get(name).filter(|_| has_every_app(context)).cloned()
    }

    /// Returns the messages of a prompt. Asks the client for required arguments that it has omitted.
    ///
    /// # Errors
    /// If there is no such prompt, an argument is missing or not a string, or a resource cannot be read.
    pub(super) async fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = &request.name;
        let unknown = || ErrorData::invalid_params(format!("Unknown prompt: {name}"), None);
        let prompt = self.find_prompt(name, context).ok_or_else(unknown)?;
        let mut values = request.arguments.unwrap_or_default();
        if let Some((name, _)) = values.iter().find(|(_, value)| !value.is_string()) {
            return Err(ErrorData::invalid_params(format!("the argument `{name}` must be a string"), None));
        }
        let is_missing = |values: &JsonMap, it: &PromptParameter| it.is_required && !values.contains_key(&it.name);
        let missing: Vec<_> = prompt.arguments.iter().filter(|it| is_missing(&values, it)).collect();
        if !missing.is_empty() {
            let client = CallInput::new(context, request.input_responses.unwrap_or_default());
            let fields = ask_for(name, &missing, &client).await;
            let pending = client.pending()?;
            if !pending.is_empty() {
                return Ok(InputRequiredResult::from_input_requests(pending).into());
            }
            values.extend(fields?.into_iter().filter(|(_, value)| value.is_string()));
        }
        if let Some(parameter) = prompt.arguments.iter().find(|it| is_missing(&values, it)) {
            return Err(missing_argument(name, &parameter.name));
        }
        let mut messages = Vec::with_capacity(prompt.messages.len());
        for message in &prompt.messages {
            let role = if message.is_assistant { Role::Assistant } else { Role::User };
            let content = match &message.content {
                PromptContent::Text(text) => ContentBlock::text(prompt.fill(text, &values)),
                PromptContent::Resource(uri) => self.embed_resource(&prompt.fill(uri, &values), context).await?,
            };
            messages.push(PromptMessage::new(role, content));
        }
        Ok(GetPromptResult::new(messages).with_description(&prompt.description).into())
    }

    /// Returns a resource as content: images and audio as such, others as embedded resources.
    async fn embed_resource(&self, uri: &str, context: &RequestContext<RoleServer>) -> Result<ContentBlock, ErrorData> {
        let contents = self.resource(uri, context).await?.contents.into_iter().next();
        let missing = || ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": uri })));
        Ok(match contents.ok_or_else(missing)? {
            ResourceContents::BlobResourceContents { uri, mime_type, blob, meta } => {
                let mime_type_text = mime_type.clone().unwrap_or_default();
                match mime_type_text.split('/').next() {
                    Some("image") => ContentBlock::Image(ImageContent::new(blob, mime_type_text)),
                    Some("audio") => ContentBlock::Audio(AudioContent::new(blob, mime_type_text)),
                    _ => {
                        let contents = ResourceContents::BlobResourceContents { uri, mime_type, blob, meta };
                        ContentBlock::Resource(EmbeddedResource::new(contents))
                    }
                }
            }
            contents => ContentBlock::Resource(EmbeddedResource::new(contents)),
        })
    }

    /// Returns the suggested values of an argument that begin with a text.
    ///
    /// # Errors
    /// If there is no such prompt, or it has no such argument.
    pub(super) fn suggest_argument(
        &self,
        prompt: &str,
        argument: &str,
        begin: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<String>, ErrorData> {
        let found = self.find_prompt(prompt, context);
        let found = found.and_then(|it| it.arguments.into_iter().find(|parameter| parameter.name == argument));
        let unknown =
            || ErrorData::invalid_params(format!("there is no argument `{argument}` of a prompt `{prompt}`"), None);
        let values = found.ok_or_else(unknown)?.values.into_iter().filter(|value| value.starts_with(begin));
        Ok(values.collect())
    }
}

/// Asks the person at the client for arguments. Returns nothing if the client cannot ask, or the person refuses.
///
/// # Errors
/// If the client fails.
async fn ask_for(prompt: &str, missing: &[&PromptParameter], client: &CallInput) -> Result<JsonMap, ErrorData> {
    if !client.supports(InputKind::Form) {
        return Ok(JsonMap::new());
    }
    let field = |parameter: &&PromptParameter| {
        let mut schema = json!({"type": "string", "description": parameter.description});
        if let (Some(schema), false) = (schema.as_object_mut(), parameter.values.is_empty()) {
            schema.insert("enum".into(), json!(parameter.values));
        }
        (parameter.name.clone(), schema)
    };
    let properties: JsonMap = missing.iter().map(field).collect();
    let required: Vec<_> = missing.iter().map(|parameter| &parameter.name).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let message = format!("The prompt {prompt} needs these arguments.");
    let request = BTreeMap::from([(ARGUMENTS.to_owned(), InputRequest::Form { message, schema })]);
    match client.request(request).await {
        Ok(mut responses) => Ok(match responses.remove(ARGUMENTS) {
            Some(InputResponse::Form(Some(fields))) => fields,
            _ => JsonMap::new(),
        }),
        Err(InputError::Pending | InputError::Unsupported(_)) => Ok(JsonMap::new()),
        Err(InputError::Failed(reason)) => Err(ErrorData::internal_error(reason, None)),
    }
}

fn missing_argument(prompt: &str, argument: &str) -> ErrorData {
    ErrorData::invalid_params(format!("the prompt `{prompt}` needs the argument `{argument}`"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_names_of_arguments() {
        let parameter = |name: &str| PromptParameter { name: name.into(), ..PromptParameter::default() };
        let prompt = ExposedPrompt { arguments: vec![parameter("a"), parameter("b")], ..ExposedPrompt::default() };
        let values = JsonMap::from_iter([("a".to_owned(), json!("{b}"))]);
        assert_eq!(prompt.fill("{a}, {b}, {c}, {{a}} {", &values), "{b}, , {c}, {{b}} {");
    }
}
