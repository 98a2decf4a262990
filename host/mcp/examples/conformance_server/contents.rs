//! Prompts and resources of the fixture.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use hatchery_mcp::{ExposedMessage, ExposedPrompt, FileResource, PromptContent, PromptParameter};

use super::PNG;

fn user(content: PromptContent) -> ExposedMessage {
    ExposedMessage { is_assistant: false, content }
}

fn text(text: &str) -> ExposedMessage {
    user(PromptContent::Text(text.into()))
}

fn resource(uri: &str) -> ExposedMessage {
    user(PromptContent::Resource(uri.into()))
}

fn required(name: &str) -> PromptParameter {
    let (name, description) = (name.to_owned(), format!("The argument {name}."));
    PromptParameter { name, description, is_required: true, values: vec!["test one".into(), "another".into()] }
}

pub fn prompts() -> BTreeMap<String, ExposedPrompt> {
    let prompts = [
        ("test_simple_prompt", vec![], vec![text("This is a simple prompt for testing.")]),
        (
            "test_prompt_with_arguments",
            vec![required("arg1"), required("arg2")],
            vec![text("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")],
        ),
        (
            "test_prompt_with_embedded_resource",
            vec![required("resourceUri")],
            vec![resource("{resourceUri}"), text("Please process the embedded resource above.")],
        ),
        (
            "test_prompt_with_image",
            vec![],
            vec![resource("test://static-binary"), text("Please analyze the image above.")],
        ),
        ("test_input_required_result_prompt", vec![required("context")], vec![text("The context is {context}.")]),
    ];
    let prompt = |(name, arguments, messages): (&str, _, _)| {
        (name.to_owned(), ExposedPrompt { description: format!("The fixture {name}."), arguments, messages })
    };
    prompts.into_iter().map(prompt).collect()
}

/// Creates the files of the resources in a folder.
pub fn resources(folder: &Path) -> io::Result<Vec<FileResource>> {
    let files: [(&str, &str, &[u8]); 5] = [
        ("test://static-text", "static.txt", b"This is the content of the static text resource."),
        ("test://static-binary", "static.png", PNG),
        (
            "test://template/{id}/data",
            "123.json",
            br#"{"id": "123", "templateTest": true, "data": "Data for ID: 123"}"#,
        ),
        ("test://watched-resource", "watched.txt", b"This is watched."),
        ("test://example-resource", "example.txt", b"Embedded resource content for testing."),
    ];
    let create = |(uri, name, content): (&str, &str, &[u8])| -> io::Result<FileResource> {
        std::fs::write(folder.join(name), content)?;
        let name = if uri.contains("{id}") { "{id}.json" } else { name };
        let (file, description) = (folder.join(name), format!("The fixture {uri}."));
        Ok(FileResource { uri: uri.into(), root: folder.to_owned(), file, description, mime_type: None })
    };
    files.into_iter().map(create).collect()
}
