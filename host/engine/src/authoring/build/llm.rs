//! The builder of LLM agents.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, CallContext, CodeExecution, Example, ExampleProvider, Examples, GenerateContentConfig,
    IncludeContents, Instruction, InstructionProvider, JsonMap, LlmAgent, Model, ModelRef, Part, Planner, RunError,
    Tool,
};
use schemars::JsonSchema;
use serde_json::Value;

use super::callback::llm_hook_methods;
use super::common::{AgentFields, builder, check_tools};
use super::error::BuildError;
use super::schema::{self, schema};
use crate::tools::IntoTool;
use crate::tools::toolsets::IntoToolset;

/// Builds an agent that calls a model in a loop and runs the tools that the model calls.
#[must_use]
pub struct LlmAgentBuilder {
    fields: AgentFields,
    llm: Box<LlmAgent>,
    /// Settings of model calls by name. They override those in `llm`.
    config: JsonMap,
}

builder!(LlmAgentBuilder);

/// Creates a builder of an LLM agent. Without its own model, the agent uses the model of its nearest ancestor with one.
pub fn llm(name: impl Into<String>) -> LlmAgentBuilder {
    LlmAgentBuilder { fields: AgentFields::new(name), llm: Box::default(), config: JsonMap::new() }
}

impl LlmAgentBuilder {
    /// Sets the model by name, such as `gemini-2.5-flash` or `scripted:answers.yaml`.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.llm.model = Some(ModelRef::Named(name.into()));
        self
    }

    /// Sets the names of fallback models, which are tried in order if the model fails before it has answered. Call this
    /// after [`model`](Self::model); without a model of this name it has no effect.
    pub fn fallback(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        if let Some(ModelRef::Named(name)) = &self.llm.model {
            let names = names.into_iter().map(Into::into).collect();
            self.llm.model = Some(ModelRef::WithFallback(name.clone(), names));
        }
        self
    }

    /// Sets the model as an object with this name.
    pub fn model_instance(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.llm.model = Some(ModelRef::Object(name.into(), model));
        self
    }

    /// Sets the instruction, with placeholders `{key}`, `{key?}`, `{app:key}`, `{artifact.name}`.
    pub fn instruction(mut self, text: impl Into<String>) -> Self {
        self.llm.instruction = Instruction::Template(text.into());
        self
    }

    /// Adds text to the beginning of the system instruction, which is sent unchanged in every request, so that
    /// providers find it in their prompt caches. The [`instruction`](Self::instruction) is then sent before the user's
    /// message.
    pub fn static_instruction(self, text: impl Into<String>) -> Self {
        self.static_instruction_part(Part::text(text))
    }

    /// Adds a text or a file to the beginning of the system instruction, as
    /// [`static_instruction`](Self::static_instruction) does.
    pub fn static_instruction_part(mut self, part: Part) -> Self {
        self.llm.static_instruction.push(part);
        self
    }

    /// Computes the instruction for each model call. Placeholders in it are not replaced.
    pub fn instruction_fn<F, R>(mut self, compute: F) -> Self
    where
        F: Fn(CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, RunError>> + Send + 'static,
    {
        self.llm.instruction = Instruction::Computed(Arc::new(FnInstruction(compute)));
        self
    }

    /// Sets the instruction for all agents of the tree, if this agent is the root.
    pub fn global_instruction(mut self, text: impl Into<String>) -> Self {
        self.llm.global_instruction = Instruction::Template(text.into());
        self
    }

    /// Computes the instruction for all agents of the tree, if this agent is the root.
    pub fn global_instruction_fn<F, R>(mut self, compute: F) -> Self
    where
        F: Fn(CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, RunError>> + Send + 'static,
    {
        self.llm.global_instruction = Instruction::Computed(Arc::new(FnInstruction(compute)));
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        self.llm.tools.push(tool.into_tool());
        self
    }

    /// Adds tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.llm.tools.extend(tools);
        self
    }

    /// Adds a toolset, whose tools are listed before each model call.
    pub fn toolset(mut self, toolset: impl IntoToolset) -> Self {
        self.llm.toolsets.push(toolset.into_toolset());
        self
    }

    /// Adds these examples to every prompt.
    pub fn examples(mut self, examples: impl IntoIterator<Item = Example>) -> Self {
        self.llm.examples = Some(Examples::Fixed(examples.into_iter().collect()));
        self
    }

    /// Adds examples to prompts that the provider chooses for the user's message.
    pub fn example_provider(mut self, provider: Arc<dyn ExampleProvider>) -> Self {
        self.llm.examples = Some(Examples::Chosen(provider));
        self
    }

    /// Sets the planner.
    pub fn planner(mut self, planner: Planner) -> Self {
        self.llm.planner = Some(planner);
        self
    }

    /// Sets the execution of code that the model writes.
    pub fn code_execution(mut self, execution: CodeExecution) -> Self {
        self.llm.code_execution = Some(execution);
        self
    }

    /// Sends the model only the current turn.
    pub fn without_history(mut self) -> Self {
        self.llm.include_contents = IncludeContents::None;
        self
    }

    /// Sets the type of the input, for use as a tool of another agent.
    pub fn input_schema<T: JsonSchema>(self) -> Self {
        self.input_json_schema(schema::<T>())
    }

    /// Sets the JSON Schema of the input, for use as a tool of another agent.
    pub fn input_json_schema(mut self, schema: Value) -> Self {
        self.llm.input_schema = Some(schema);
        self
    }

    /// Sets the type of the answer, which is then JSON.
    pub fn output_schema<T: JsonSchema>(self) -> Self {
        self.output_json_schema(schema::<T>())
    }

    /// Sets the JSON Schema of the answer, which is then JSON.
    pub fn output_json_schema(mut self, schema: Value) -> Self {
        self.llm.output_schema = Some(schema);
        self
    }

    /// Saves the answer under this state key.
    pub fn output_key(mut self, key: impl Into<String>) -> Self {
        self.llm.output_key = Some(key.into());
        self
    }

    /// Limits the model calls of one run of the agent.
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.llm.max_steps = Some(steps);
        self
    }

    /// Forbids transfers to the parent.
    pub fn disallow_transfer_to_parent(mut self) -> Self {
        self.llm.disallow_transfer_to_parent = true;
        self
    }

    /// Forbids transfers to siblings.
    pub fn disallow_transfer_to_peers(mut self) -> Self {
        self.llm.disallow_transfer_to_peers = true;
        self
    }

    /// Replaces all settings of model calls.
    pub fn generate_content_config(mut self, config: GenerateContentConfig) -> Self {
        self.llm.generate_content_config = config;
        self.config.clear();
        self
    }

    /// Sets one setting of model calls by its name in Gemini's `GenerateContentConfig`, such as `temperature`.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.config.insert(key.into(), value.into());
        self
    }

    llm_hook_methods!(llm.callbacks);

    /// Builds the agent.
    ///
    /// # Errors
    /// If a name is invalid, two tools have the same name, a schema or a setting is invalid, or a sub-agent cannot be
    /// built.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        let agent = &self.fields.name;
        check_tools(agent, &self.llm.tools)?;
        for (key, schema) in [("input_schema", &self.llm.input_schema), ("output_schema", &self.llm.output_schema)] {
            if let Some(reason) = schema.as_ref().and_then(schema::validation_error) {
                return Err(BuildError::Schema { agent: agent.clone(), key, reason });
            }
        }
        if !self.config.is_empty() {
            self.llm.generate_content_config = with_settings(&self.llm.generate_content_config, self.config)
                .map_err(|reason| BuildError::Config { agent: agent.clone(), reason })?;
        }
        let checked = self.llm.generate_content_config.check();
        checked.map_err(|reason| BuildError::Config { agent: agent.clone(), reason })?;
        self.fields.build(AgentKind::Llm(self.llm))
    }
}

/// Returns the config with `settings` on top.
fn with_settings(config: &GenerateContentConfig, settings: JsonMap) -> Result<GenerateContentConfig, String> {
    let mut config = serde_json::to_value(config).map_err(|error| error.to_string())?;
    if let Value::Object(config) = &mut config {
        config.extend(settings);
    }
    serde_path_to_error::deserialize(config).map_err(|error| error.to_string())
}

struct FnInstruction<F>(F);

#[async_trait]
impl<F, R> InstructionProvider for FnInstruction<F>
where
    F: Fn(CallContext) -> R + Send + Sync,
    R: Future<Output = Result<String, RunError>> + Send + 'static,
{
    async fn instruction(&self, cx: &CallContext) -> Result<String, RunError> {
        (self.0)(cx.clone()).await
    }
}
