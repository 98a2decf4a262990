//! Builds an agent that calls a model.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, CallContext, CodeExecution, Example, ExampleProvider, Examples, GenerateContentConfig,
    IncludeContents, Instruction, InstructionProvider, JsonMap, LlmAgent, Model, ModelRef, Planner, RunError, Tool,
};
use schemars::JsonSchema;
use serde_json::Value;

use super::callback::llm_hook_methods;
use super::common::{Common, builder, check_tools};
use super::error::BuildError;
use super::schema::{self, schema};
use super::tool::IntoTool;
use crate::tools::toolsets::IntoToolset;

/// Builds an agent that calls a model in a loop, with the tools that the model asks for.
#[must_use]
pub struct LlmAgentBuilder {
    common: Common,
    llm: Box<LlmAgent>,
    /// Settings of model calls by name, on top of those in `llm`.
    config: JsonMap,
}

builder!(LlmAgentBuilder);

/// An agent without instruction and tools, which uses the model of the nearest agent above it that has one.
pub fn llm(name: impl Into<String>) -> LlmAgentBuilder {
    LlmAgentBuilder { common: Common::new(name), llm: Box::default(), config: JsonMap::new() }
}

impl LlmAgentBuilder {
    /// The model's name, such as `gemini-2.5-flash` or `scripted:answers.yaml`.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.llm.model = Some(ModelRef::Named(name.into()));
        self
    }

    /// The model as an object, used under this name.
    pub fn model_instance(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.llm.model = Some(ModelRef::Object(name.into(), model));
        self
    }

    /// What the model is told, with placeholders `{key}`, `{key?}`, `{app:key}`, `{artifact.name}`.
    pub fn instruction(mut self, text: impl Into<String>) -> Self {
        self.llm.instruction = Instruction::Template(text.into());
        self
    }

    /// Computes what the model is told, for each model call; used as it is.
    pub fn instruction_fn<F, R>(mut self, compute: F) -> Self
    where
        F: Fn(CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, RunError>> + Send + 'static,
    {
        self.llm.instruction = Instruction::Computed(Arc::new(Computed(compute)));
        self
    }

    /// What the models of all agents are told, when this agent is the root.
    pub fn global_instruction(mut self, text: impl Into<String>) -> Self {
        self.llm.global_instruction = Instruction::Template(text.into());
        self
    }

    /// Computes what the models of all agents are told, when this agent is the root.
    pub fn global_instruction_fn<F, R>(mut self, compute: F) -> Self
    where
        F: Fn(CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, RunError>> + Send + 'static,
    {
        self.llm.global_instruction = Instruction::Computed(Arc::new(Computed(compute)));
        self
    }

    /// A tool that the model may call.
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        self.llm.tools.push(tool.into_tool());
        self
    }

    /// Tools that the model may call.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.llm.tools.extend(tools);
        self
    }

    /// Tools that are looked up before each model call.
    pub fn toolset(mut self, toolset: impl IntoToolset) -> Self {
        self.llm.toolsets.push(toolset.into_toolset());
        self
    }

    /// Shows the model how to answer, always with these examples.
    pub fn examples(mut self, examples: impl IntoIterator<Item = Example>) -> Self {
        self.llm.examples = Some(Examples::Fixed(examples.into_iter().collect()));
        self
    }

    /// Shows the model how to answer, with examples chosen for what the user says.
    pub fn example_provider(mut self, provider: Arc<dyn ExampleProvider>) -> Self {
        self.llm.examples = Some(Examples::Chosen(provider));
        self
    }

    /// How the model is made to think before it acts.
    pub fn planner(mut self, planner: Planner) -> Self {
        self.llm.planner = Some(planner);
        self
    }

    /// Who runs the code that the model writes.
    pub fn code_execution(mut self, execution: CodeExecution) -> Self {
        self.llm.code_execution = Some(execution);
        self
    }

    /// The model sees only the current turn.
    pub fn without_history(mut self) -> Self {
        self.llm.include_contents = IncludeContents::None;
        self
    }

    /// The shape of its input, when another agent uses it as a tool.
    pub fn input_schema<T: JsonSchema>(self) -> Self {
        self.input_json_schema(schema::<T>())
    }

    /// The JSON Schema of its input, when another agent uses it as a tool.
    pub fn input_json_schema(mut self, schema: Value) -> Self {
        self.llm.input_schema = Some(schema);
        self
    }

    /// The shape of its answer, which is then JSON.
    pub fn output_schema<T: JsonSchema>(self) -> Self {
        self.output_json_schema(schema::<T>())
    }

    /// The JSON Schema of its answer, which is then JSON.
    pub fn output_json_schema(mut self, schema: Value) -> Self {
        self.llm.output_schema = Some(schema);
        self
    }

    /// The state key that its answer goes to.
    pub fn output_key(mut self, key: impl Into<String>) -> Self {
        self.llm.output_key = Some(key.into());
        self
    }

    /// Most model calls of one run of it.
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.llm.max_steps = Some(steps);
        self
    }

    /// It may not hand over to the agent above it.
    pub fn disallow_transfer_to_parent(mut self) -> Self {
        self.llm.disallow_transfer_to_parent = true;
        self
    }

    /// It may not hand over to its siblings.
    pub fn disallow_transfer_to_peers(mut self) -> Self {
        self.llm.disallow_transfer_to_peers = true;
        self
    }

    /// Settings of the model calls, in place of those given before.
    pub fn generate_content_config(mut self, config: GenerateContentConfig) -> Self {
        self.llm.generate_content_config = config;
        self.config.clear();
        self
    }

    /// A setting of the model calls, by its name in Gemini's `GenerateContentConfig`, such as `temperature`.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.config.insert(key.into(), value.into());
        self
    }

    llm_hook_methods!(llm.callbacks);

    /// The agent.
    ///
    /// # Errors
    /// When a name cannot be used, two of its tools have one name, a schema or a setting is wrong, or an agent below it cannot be built.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        let agent = &self.common.name;
        check_tools(agent, &self.llm.tools)?;
        for (key, schema) in [("input_schema", &self.llm.input_schema), ("output_schema", &self.llm.output_schema)] {
            if let Some(reason) = schema.as_ref().and_then(schema::wrong_with) {
                return Err(BuildError::Schema { agent: agent.clone(), key, reason });
            }
        }
        if !self.config.is_empty() {
            self.llm.generate_content_config = configured(&self.llm.generate_content_config, self.config)
                .map_err(|reason| BuildError::Config { agent: agent.clone(), reason })?;
        }
        self.common.build(AgentKind::Llm(self.llm))
    }
}

/// The settings with these on top.
fn configured(config: &GenerateContentConfig, settings: JsonMap) -> Result<GenerateContentConfig, String> {
    let mut config = serde_json::to_value(config).map_err(|error| error.to_string())?;
    if let Value::Object(config) = &mut config {
        config.extend(settings);
    }
    serde_path_to_error::deserialize(config).map_err(|error| error.to_string())
}

struct Computed<F>(F);

#[async_trait]
impl<F, R> InstructionProvider for Computed<F>
where
    F: Fn(CallContext) -> R + Send + Sync,
    R: Future<Output = Result<String, RunError>> + Send + 'static,
{
    async fn instruction(&self, cx: &CallContext) -> Result<String, RunError> {
        (self.0)(cx.clone()).await
    }
}
