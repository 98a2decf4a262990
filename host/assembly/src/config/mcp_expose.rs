//! Settings of the prompts and the files for MCP clients: `mcp.expose.prompts` and `mcp.expose.resources`.

use std::collections::BTreeSet;
use std::path::{Component, PathBuf};

use hatchery_mcp::{ExposedMessage, ExposedPrompt, FileResource, PromptContent, PromptParameter};
use serde::Deserialize;

/// A prompt for clients.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpPromptConfig {
    /// A text for people.
    #[serde(default)]
    pub description: String,
    /// The arguments. `{NAME}` in a message is replaced by the value of an argument.
    #[serde(default)]
    pub arguments: Vec<McpPromptArgumentConfig>,
    pub messages: Vec<McpPromptMessageConfig>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpPromptArgumentConfig {
    pub name: String,
    /// A text for people.
    #[serde(default)]
    pub description: String,
    /// Whether the prompt needs it. Default: false.
    #[serde(default)]
    pub required: bool,
    /// The values that are suggested.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A message of a prompt: a text or a resource.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpPromptMessageConfig {
    /// The author. Default: the user.
    #[serde(default)]
    pub role: McpPromptRole,
    pub text: Option<String>,
    /// The URI of a resource of this host.
    pub resource: Option<String>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPromptRole {
    #[default]
    User,
    Assistant,
}

/// A file, or the files of a folder, as resources.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpResourceConfig {
    /// The path, relative to the folder of the configuration.
    pub file: PathBuf,
    /// The folder of the configuration.
    #[serde(skip)]
    pub(super) root: PathBuf,
    /// A description for people and models.
    #[serde(default)]
    pub description: String,
    /// The media type. Default: the media type of the file's extension.
    pub mime_type: Option<String>,
}

impl McpPromptConfig {
    /// Returns the prompt.
    ///
    /// # Errors
    /// If a message has not exactly one of `text` and `resource`, or two arguments have the same name.
    pub(crate) fn prompt(&self) -> Result<ExposedPrompt, String> {
        let mut names = BTreeSet::new();
        if let Some(argument) = self.arguments.iter().find(|argument| !names.insert(&argument.name)) {
            return Err(format!("the argument `{}` is listed twice", argument.name));
        }
        let messages = self.messages.iter().map(|message| {
            let content = match (&message.text, &message.resource) {
                (Some(text), None) => PromptContent::Text(text.clone()),
                (None, Some(uri)) => PromptContent::Resource(uri.clone()),
                _ => return Err("a message has either a `text` or a `resource`".to_owned()),
            };
            Ok(ExposedMessage { is_assistant: message.role == McpPromptRole::Assistant, content })
        });
        let arguments = self.arguments.iter().map(|argument| PromptParameter {
            name: argument.name.clone(),
            description: argument.description.clone(),
            is_required: argument.required,
            values: argument.values.clone(),
        });
        let (description, arguments) = (self.description.clone(), arguments.collect());
        Ok(ExposedPrompt { description, arguments, messages: messages.collect::<Result<_, _>>()? })
    }
}

impl McpResourceConfig {
    /// Checks the resource at a URI, before its path is resolved.
    ///
    /// # Errors
    /// If the URI is invalid, or the path is hidden or leads out of the folder.
    pub(super) fn check(&self, uri: &str) -> Result<(), String> {
        let is_plain = |part: Component<'_>| match part {
            Component::Normal(name) => !name.as_encoded_bytes().starts_with(b"."),
            Component::CurDir => true,
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => false,
        };
        if !self.file.components().all(is_plain) || self.file.file_name().is_none() {
            return Err("`file` must be a path inside of the folder of this configuration, and not hidden".into());
        }
        self.resource(uri).check()
    }

    /// Returns the resource at a URI.
    pub(crate) fn resource(&self, uri: &str) -> FileResource {
        FileResource {
            uri: uri.to_owned(),
            root: self.root.clone(),
            file: self.file.clone(),
            description: self.description.clone(),
            mime_type: self.mime_type.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hatchery_mcp::PromptContent;

    use crate::config::Config;

    fn parse(expose: &str) -> Result<Config, String> {
        let text = format!("mcp: {{expose: {expose}}}\n");
        Config::parse(&text, Path::new("/srv/agents/hatchery.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn prompts_and_files_for_clients_are_in_the_settings() {
        let config = parse(
            "{prompts: {report: {description: d, arguments: [{name: topic, required: true, values: [a]}], \
             messages: [{text: 'About {topic}.'}, {role: assistant, resource: 'docs://{topic}'}]}}, \
             resources: {'docs://{page}': {file: './docs/{page}.md', mime_type: text/plain}}}",
        );
        let expose = config.unwrap().mcp.expose;
        let prompt = expose.prompts["report"].prompt().unwrap();
        assert_eq!((prompt.arguments[0].is_required, &prompt.arguments[0].values[..]), (true, &["a".to_owned()][..]));
        assert_eq!(prompt.messages[0].content, PromptContent::Text("About {topic}.".into()));
        assert_eq!(prompt.messages[1].content, PromptContent::Resource("docs://{topic}".into()));
        assert_eq!([prompt.messages[0].is_assistant, prompt.messages[1].is_assistant], [false, true]);
        let file = expose.resources["docs://{page}"].resource("docs://{page}");
        assert_eq!((&*file.root, &*file.file), (Path::new("/srv/agents"), Path::new("/srv/agents/docs/{page}.md")));
        assert_eq!(file.mime_type.as_deref(), Some("text/plain"));
    }

    #[test]
    fn prompts_and_files_that_cannot_work_are_errors() {
        let error = |expose: &str| parse(expose).unwrap_err();
        let prompt = "/srv/agents/hatchery.yaml: mcp.expose.prompts.p";
        let content = "a message has either a `text` or a `resource`";
        assert_eq!(error("{prompts: {p: {messages: [{}]}}}"), format!("{prompt}: {content}"));
        assert_eq!(error("{prompts: {p: {messages: [{text: a, resource: 'b://c'}]}}}"), format!("{prompt}: {content}"));
        assert_eq!(
            error("{prompts: {p: {arguments: [{name: a}, {name: a}], messages: []}}}"),
            format!("{prompt}: the argument `a` is listed twice")
        );
        let resource = "/srv/agents/hatchery.yaml: mcp.expose.resources: `a://b`";
        let path = "`file` must be a path inside of the folder of this configuration, and not hidden";
        for file in ["/etc/passwd", "../a.md", "a/../b.md", ".env", ".git/config", "."] {
            let expected = format!("{resource}: {path}");
            assert_eq!(error(&format!("{{resources: {{'a://b': {{file: '{file}'}}}}}}")), expected, "{file}");
        }
        assert_eq!(
            error("{resources: {'a://b': {file: '{page}.md'}}}"),
            format!(
                "{resource}: `a://b` and the name of its file need the same placeholder, as in `{{page}}`, or none"
            )
        );
    }
}
