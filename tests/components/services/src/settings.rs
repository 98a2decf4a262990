//! Arguments of the configuration, and the plugins of a run.

use hatchery_guest::prelude::*;

/// Returns the arguments with which the configuration uses this tool.
#[tool]
pub async fn arguments(cx: ToolContext) -> Result<Option<Value>, Error> {
    cx.arguments()
}

/// Adds the instruction of its arguments to each request.
pub struct Advice;

#[plugin]
impl Advice {
    async fn before_model(request: &mut LlmRequest, cx: CallbackContext) -> Result<Option<LlmResponse>, Error> {
        let arguments: Option<Value> = cx.arguments()?;
        let text = arguments.as_ref().and_then(|arguments| arguments["text"].as_str());
        request.system_instructions.push(text.unwrap_or("no advice").into());
        Ok(None)
    }

    async fn close() -> Result<(), Error> {
        log::info("no more advice", &[]);
        Ok(())
    }
}

/// A plugin to look up.
#[derive(Deserialize, JsonSchema)]
pub struct PluginName {
    /// Its name; all plugins if there is none.
    name: Option<String>,
}

/// Describes the plugins of the run.
#[tool]
pub async fn plugins(plugin: PluginName, cx: ToolContext) -> Result<Vec<Value>, Error> {
    let plugins = match plugin.name {
        Some(name) => cx.plugin(&name)?.into_iter().collect(),
        None => cx.plugins()?,
    };
    let to_json = |plugin: hatchery_guest::PluginInfo| json!([plugin.name, plugin.hooks, plugin.component]);
    Ok(plugins.into_iter().map(to_json).collect())
}

/// Saves an artifact and deletes it.
#[tool]
pub async fn shred(cx: ToolContext) -> Result<(), Error> {
    cx.artifacts().save("draft", Part::text("a draft")).await?;
    cx.artifacts().save("final", Part::text("the text")).await?;
    cx.artifacts().delete("draft").await
}
