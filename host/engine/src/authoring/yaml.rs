//! Agents from YAML files: `root_agent.yaml` and what it refers to.
//!
//! Keys are those of ADK agent configs, in snake_case or camelCase. Unknown keys, keys of another kind of agent, unknown names and files
//! outside the agent's folder are errors that say where.

mod code;
mod config;
mod error;

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use hatchery_core::{
    Agent, AgentKind, Callbacks, CodeExecution, Example, Examples, HookPoint, IncludeContents, Instruction,
    ItemResolver, LlmAgent, ModelRef, ResolveError, Tool, Toolset, check_agent_name,
};

pub use error::ConfigError;

use serde_json::Value;

use crate::authoring::build::schema;
use crate::llm::tool_resolution::RESERVED;
use crate::tools::builtin::{AgentTool, ExampleTool, LongRunning, ModelTool, RequireConfirmation};
use crate::tools::toolsets::IntoToolset;
use config::{
    AgentClass, AgentConfig, AgentToolArgs, ExampleToolArgs, LongRunningArgs, NameRef, SubAgentRef, ToolRef,
    ToolsetArgs, VertexAiRagRetrievalArgs, VertexAiSearchArgs,
};

/// The file that makes a folder an app.
pub const ROOT_FILE: &str = "root_agent.yaml";

/// Larger files are refused before they are parsed.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// More brackets open at once are refused before the file is parsed: the parser's time grows with the square of the depth.
const MAX_BRACKETS: usize = 256;

/// The entry of `tools` that stands for all tools of a set.
const TOOLSET: &str = "Toolset";

/// How deep files may refer to files.
const MAX_DEPTH: usize = 32;

/// An agent with everything below it, and the files that it came from.
pub struct Loaded {
    /// The agent.
    pub agent: Agent,
    /// Every file that was read.
    pub files: Vec<PathBuf>,
}

/// Reads an agent from a file, with all that it refers to. Files that it names must lie in its folder or below.
///
/// # Errors
/// When a file cannot be read or is not an agent config, or a name in it is not found.
pub fn load_agent(path: &Path, lookup: &dyn ItemResolver) -> Result<Loaded, ConfigError> {
    load_agent_outside(path, lookup, &[])
}

/// As [`load_agent`], and reads nothing that is in one of the folders `written`, which are canonical: components may write there.
///
/// # Errors
/// As [`load_agent`], and when a file is in one of these folders.
pub fn load_agent_outside(path: &Path, lookup: &dyn ItemResolver, written: &[PathBuf]) -> Result<Loaded, ConfigError> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")).to_path_buf();
    let mut loader = Loader { folder, lookup, written, files: Vec::new(), names: HashMap::new(), depth: 0 };
    let agent = loader.agent(path)?;
    Ok(Loaded { agent, files: loader.files })
}

struct Loader<'a> {
    /// The folder that no file may leave.
    folder: PathBuf,
    lookup: &'a dyn ItemResolver,
    /// Folders that components may write.
    written: &'a [PathBuf],
    files: Vec<PathBuf>,
    /// Names of agents, and the files that they are in.
    names: HashMap<String, PathBuf>,
    /// How many files lie open, from the root to the one being read.
    depth: usize,
}

/// A file being read: what is needed to say where something is wrong.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Loader<'_> {
    fn agent(&mut self, path: &Path) -> Result<Agent, ConfigError> {
        self.check_not_written(path)?;
        let text = read(path)?;
        self.files.push(path.to_path_buf());
        self.depth += 1;
        let config: AgentConfig = serde_yaml::from_str(&text).map_err(|error| ConfigError::syntax(path, &error))?;
        let source = Source { path, text: &text };
        let agent = self.build(config, &source)?;
        self.depth -= 1;
        Ok(agent)
    }

    fn build(&mut self, config: AgentConfig, source: &Source<'_>) -> Result<Agent, ConfigError> {
        if let Some((key, class)) = config.misplaced_key() {
            return Err(source.error(
                &key,
                "",
                format!("`{key}` is a key of {class}, but this is a {}", config.agent_class.label()),
            ));
        }
        if config.name.trim().is_empty() {
            return Err(source.error("name", "", "Agent name is required: add `name: …`".into()));
        }
        self.check_agent_name(&config.name, source)?;
        let kind = match config.agent_class {
            AgentClass::Llm => AgentKind::Llm(Box::new(self.llm(&config, source)?)),
            AgentClass::Sequential => AgentKind::Sequential,
            AgentClass::Parallel => AgentKind::Parallel,
            AgentClass::Loop => AgentKind::Loop { max_iterations: config.max_iterations },
        };
        let mut sub_agents = Vec::with_capacity(config.sub_agents.len());
        for sub_agent in &config.sub_agents {
            sub_agents.push(self.sub_agent(sub_agent, source)?);
        }
        Ok(Agent {
            callbacks: self.callbacks(&config, HookPoint::is_for_all_agents, source)?,
            name: config.name,
            description: config.description,
            kind,
            sub_agents,
        })
    }

    /// Refuses a file that a component may write, wherever links lead from `path`.
    fn check_not_written(&self, path: &Path) -> Result<(), ConfigError> {
        let is_written = |path: PathBuf| self.written.iter().any(|folder| path.starts_with(folder));
        if self.written.is_empty() || !path.canonicalize().is_ok_and(is_written) {
            return Ok(());
        }
        let message =
            "is in a folder that a component may write, so it is not read as an agent; move it elsewhere".into();
        Err(ConfigError::at(path, None, message))
    }

    fn check_agent_name(&mut self, name: &str, source: &Source<'_>) -> Result<(), ConfigError> {
        check_agent_name(name).map_err(|error| source.error("name", name, error.to_string()))?;
        match self.names.insert(name.into(), source.path.to_path_buf()) {
            None => Ok(()),
            Some(first) => {
                let message = format!("two agents are named `{name}`; the other is in {}", first.display());
                Err(source.error("name", name, message))
            }
        }
    }

    fn llm(&mut self, config: &AgentConfig, source: &Source<'_>) -> Result<LlmAgent, ConfigError> {
        let template = |text: &Option<String>| text.clone().map_or(Instruction::None, Instruction::Template);
        if config.instruction.as_deref().is_none_or(|text| text.trim().is_empty()) {
            let message = "Agent instruction is required: add `instruction: …`".into();
            return Err(source.error("instruction", "", message));
        }
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let (tools, toolsets): (Vec<_>, Vec<_>) = config.tools.iter().partition(|tool| tool.name != TOOLSET);
        Ok(LlmAgent {
            model: given(&config.model).map(ModelRef::Named),
            instruction: template(&config.instruction),
            global_instruction: template(&config.global_instruction),
            code_execution: self.code_execution(config, source)?,
            tools: self.tools(&tools, source)?,
            toolsets: toolsets.into_iter().map(|toolset| self.toolset(toolset, source)).collect::<Result<_, _>>()?,
            planner: config::planner(config.planner.as_ref())
                .map_err(|message| source.error("planner", "", message))?,
            examples: self.examples(config.examples.as_ref(), source)?,
            include_contents: self.include_contents(config, source)?,
            input_schema: self.schema("input_schema", &config.input_schema, source)?,
            output_schema: self.schema("output_schema", &config.output_schema, source)?,
            output_key: given(&config.output_key),
            max_steps: config.max_steps,
            disallow_transfer_to_parent: config.disallow_transfer_to_parent,
            disallow_transfer_to_peers: config.disallow_transfer_to_peers,
            generate_content_config: config::generate_content_config(config.generate_content_config.clone())
                .map_err(|message| source.error("generate_content_config", "", message))?,
            callbacks: self.callbacks(config, |point| !point.is_for_all_agents(), source)?,
            capabilities: None,
        })
    }

    fn schema(&self, key: &str, schema: &Option<Value>, source: &Source<'_>) -> Result<Option<Value>, ConfigError> {
        match schema.as_ref().and_then(schema::wrong_with) {
            Some(reason) => Err(source.error(key, "", format!("`{key}` is no JSON Schema: {reason}"))),
            None => Ok(schema.clone()),
        }
    }

    fn code_execution(&self, config: &AgentConfig, source: &Source<'_>) -> Result<Option<CodeExecution>, ConfigError> {
        let Some(executor) = &config.code_executor else { return Ok(None) };
        code::code_execution(executor, self.lookup).map(Some).map_err(|wrong| match wrong {
            code::Wrong::Value(message) => source.error("code_executor", "", message),
            code::Wrong::Name(name, error) => source.lookup("code_executor", &name, &error),
        })
    }

    fn include_contents(&self, config: &AgentConfig, source: &Source<'_>) -> Result<IncludeContents, ConfigError> {
        match config.include_contents.as_deref() {
            None => Ok(IncludeContents::Default),
            Some(word) if word.eq_ignore_ascii_case("default") => Ok(IncludeContents::Default),
            Some(word) if word.eq_ignore_ascii_case("none") => Ok(IncludeContents::None),
            Some(word) => {
                let message = format!("`include_contents` can be `default` or `none`, not `{word}`");
                Err(source.error("include_contents", word, message))
            }
        }
    }

    fn examples(&self, examples: Option<&Value>, source: &Source<'_>) -> Result<Option<Examples>, ConfigError> {
        let error = |message: String| source.error("examples", "", message);
        match examples {
            None => Ok(None),
            Some(Value::String(name)) => match self.lookup.examples(name) {
                Ok(provider) => Ok(Some(Examples::Chosen(provider))),
                Err(reason) => Err(source.error("examples", name, reason.to_string())),
            },
            Some(Value::Array(list)) if list.is_empty() => Err(error("`examples` is empty".into())),
            Some(list @ Value::Array(_)) => match config::parse::<Vec<Example>>(list.clone()) {
                Ok(examples) => Ok(Some(Examples::Fixed(examples.into()))),
                Err(reason) => Err(error(format!("examples: {reason}"))),
            },
            Some(_) => Err(error("`examples` can be a list of `input` and `output`, or a provider's name".into())),
        }
    }

    fn tools(&mut self, tools: &[&ToolRef], source: &Source<'_>) -> Result<Vec<Arc<dyn Tool>>, ConfigError> {
        let mut found: Vec<Arc<dyn Tool>> = Vec::with_capacity(tools.len());
        for reference in tools {
            let tool = self.tool(reference, source)?;
            let name = &tool.declaration().name;
            if RESERVED.contains(&name.as_str()) {
                let message = format!("the engine has a tool `{name}` of its own; give this one another name");
                return Err(source.error("name", &reference.name, message));
            }
            if found.iter().any(|other| other.declaration().name == *name) {
                let message = format!("two tools are named `{name}` to the model; leave one of them out");
                return Err(source.error("name", &reference.name, message));
            }
            found.push(tool);
        }
        Ok(found)
    }

    fn tool(&mut self, reference: &ToolRef, source: &Source<'_>) -> Result<Arc<dyn Tool>, ConfigError> {
        let tool = self.plain_tool(reference, source)?;
        Ok(if reference.require_confirmation { Arc::new(RequireConfirmation::new(tool)) } else { tool })
    }

    fn plain_tool(&mut self, tool: &ToolRef, source: &Source<'_>) -> Result<Arc<dyn Tool>, ConfigError> {
        if tool.name.trim().is_empty() {
            return Err(source.error("tools", "", "Tool name cannot be empty".into()));
        }
        if let Some(made) = self.made_with_args(tool, source) {
            return made;
        }
        if tool.args.is_some() {
            let message = format!("tool `{}` takes no `args`", tool.name);
            return Err(source.error("name", &tool.name, message));
        }
        self.lookup.tool(&tool.name).map_err(|error| source.lookup("tools", &tool.name, &error))
    }

    fn toolset(&self, reference: &ToolRef, source: &Source<'_>) -> Result<Arc<dyn Toolset>, ConfigError> {
        let args = Value::Object(reference.args.clone().unwrap_or_default());
        let args: ToolsetArgs =
            config::parse(args).map_err(|message| source.error("name", TOOLSET, format!("{TOOLSET}: {message}")))?;
        let mut toolset =
            self.lookup.toolset(&args.name).map_err(|error| source.lookup("tools", &args.name, &error))?;
        if let Some(names) = args.only {
            toolset = toolset.only(names).into_toolset();
        }
        if let Some(prefix) = args.prefix {
            toolset = toolset.prefix(prefix).into_toolset();
        }
        if reference.require_confirmation {
            toolset = toolset.requiring_confirmation().into_toolset();
        }
        Ok(toolset)
    }

    /// The tools that are made from arguments; nothing for other names.
    fn made_with_args(&mut self, tool: &ToolRef, source: &Source<'_>) -> Option<Result<Arc<dyn Tool>, ConfigError>> {
        let error = |message: String| source.error("name", &tool.name, format!("{}: {message}", tool.name));
        let args = || Value::Object(tool.args.clone().unwrap_or_default());
        Some(match tool.name.as_str() {
            "AgentTool" => config::parse::<AgentToolArgs>(args()).map_err(error).and_then(|args| {
                let agent = self.sub_agent(&args.agent, source)?;
                let tool = AgentTool::new(agent, args.skip_summarization);
                Ok(Arc::new(tool.map_err(|reason| error(reason.to_string()))?) as Arc<dyn Tool>)
            }),
            "ExampleTool" => config::parse::<ExampleToolArgs>(args()).map_err(error).and_then(|args| {
                if args.examples.is_empty() {
                    return Err(error("`examples` is empty".into()));
                }
                Ok(Arc::new(ExampleTool::new(&args.examples)) as Arc<dyn Tool>)
            }),
            "LongRunningFunctionTool" => config::parse::<LongRunningArgs>(args()).map_err(error).and_then(|args| {
                let inner = self.lookup.tool(&args.func).map_err(|reason| error(reason.to_string()))?;
                Ok(Arc::new(LongRunning::new(inner)) as Arc<dyn Tool>)
            }),
            "vertex_ai_search" => config::parse::<VertexAiSearchArgs>(args()).map_err(error).and_then(|args| {
                let tool = ModelTool::vertex_ai_search(args.data_store_id.as_deref(), args.search_engine_id.as_deref());
                Ok(Arc::new(tool.map_err(error)?) as Arc<dyn Tool>)
            }),
            "vertex_ai_rag_retrieval" => {
                config::parse::<VertexAiRagRetrievalArgs>(args()).map_err(error).and_then(|args| {
                    let (top_k, max_distance) = (args.similarity_top_k, args.vector_distance_threshold);
                    let tool = ModelTool::vertex_ai_rag_retrieval(&args.rag_corpora, top_k, max_distance);
                    Ok(Arc::new(tool.map_err(error)?) as Arc<dyn Tool>)
                })
            }
            _ => return None,
        })
    }

    fn callbacks(
        &self,
        config: &AgentConfig,
        is_included: impl Fn(HookPoint) -> bool,
        source: &Source<'_>,
    ) -> Result<Callbacks, ConfigError> {
        let mut callbacks = Callbacks::default();
        for (point, names) in config.callbacks().into_iter().filter(|(point, _)| is_included(*point)) {
            for NameRef { name } in names {
                let callback = self.lookup.callback(name);
                let callback = callback.map_err(|error| source.lookup(&config::callbacks_key(point), name, &error))?;
                callbacks.push(point, callback);
            }
        }
        Ok(callbacks)
    }

    fn sub_agent(&mut self, sub_agent: &SubAgentRef, source: &Source<'_>) -> Result<Agent, ConfigError> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        match (given(&sub_agent.config_path), given(&sub_agent.code)) {
            (Some(path), None) => self.file(&path, source),
            (None, Some(name)) => self.lookup.agent(&name).map_err(|error| source.lookup("sub_agents", &name, &error)),
            (None, None) | (Some(_), Some(_)) => {
                let message =
                    "a sub agent needs either `config_path` (a YAML file) or `code` (an agent of a component)".into();
                Err(source.error("sub_agents", "", message))
            }
        }
    }

    fn file(&mut self, relative: &str, source: &Source<'_>) -> Result<Agent, ConfigError> {
        let error = |message| Err(source.error("config_path", relative, message));
        let plain =
            Path::new(relative).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !plain {
            return error(format!("`{relative}` leaves the agent's folder; move the file there"));
        }
        let path: PathBuf = source.path.parent().unwrap_or(&self.folder).join(relative).components().collect();
        if !path.is_file() {
            return error(format!("Config file not found: {}", path.display()));
        }
        let inside = |path: &Path| Some(path.canonicalize().ok()?.starts_with(self.folder.canonicalize().ok()?));
        if inside(&path) != Some(true) {
            return error(format!("`{relative}` leads out of the agent's folder; move the file there"));
        }
        // Names are unique, so a file that is used twice could not be loaded anyway.
        if self.files.contains(&path) {
            return error(format!("`{relative}` is used already; an agent has one place, and cannot be below itself"));
        }
        if self.depth >= MAX_DEPTH {
            return error(format!("sub agents are nested more than {MAX_DEPTH} files deep"));
        }
        self.agent(&path)
    }
}

impl Source<'_> {
    fn error(&self, key: &str, value: &str, message: String) -> ConfigError {
        ConfigError::at(self.path, error::find(self.text, key, value), message)
    }

    fn lookup(&self, key: &str, name: &str, error: &ResolveError) -> ConfigError {
        let at = [key, "name", "code"].into_iter().find_map(|key| error::find(self.text, key, name));
        ConfigError::at(self.path, at, format!("{key}: {error}"))
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            ConfigError::at(path, None, format!("Config file not found: {}", path.display()))
        }
        _ => ConfigError::at(path, None, format!("cannot be read: {error}")),
    };
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_BYTES {
        let message = format!("is {size} bytes long; an agent config may be {MAX_FILE_BYTES} bytes long at most");
        return Err(ConfigError::at(path, None, message));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    if open_brackets(&text) > MAX_BRACKETS {
        return Err(ConfigError::at(path, None, format!("more than {MAX_BRACKETS} brackets are open at once")));
    }
    Ok(text)
}

/// The most brackets that are open at one place.
fn open_brackets(text: &str) -> usize {
    let (_, most) = text.bytes().fold((0usize, 0usize), |(open, most), byte| match byte {
        b'{' | b'[' => (open + 1, most.max(open + 1)),
        b'}' | b']' => (open.saturating_sub(1), most),
        _ => (open, most),
    });
    most
}
