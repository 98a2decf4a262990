//! Builds a tree of agents from their files.

use std::collections::HashMap;
use std::mem;
use std::path::{Component, Path, PathBuf};

use hatchery_core::suggestion::suggestion;
use hatchery_core::{
    Agent, AgentKind, Callbacks, CodeExecution, Example, Examples, HookPoint, IncludeContents, Instruction, ItemKind,
    JsonMap, LlmAgent, ModelRef, ResolveError, check_agent_name, quoted_list,
};
use serde_json::Value;

use super::config::{self, AgentClass, AgentConfig, NameRef, SubAgentRef};
use super::error::ConfigError;
use super::file::{Source, read};
use super::tools::TOOLSET;
use super::{AgentLoader, code};
use crate::authoring::build::schema;
use crate::factories::Factories;

/// Maximum depth of references between files.
const MAX_DEPTH: usize = 32;

/// The state of one load.
pub(super) struct TreeLoader<'a> {
    pub(super) options: &'a AgentLoader<'a>,
    /// The folder that all files must lie in.
    pub(super) folder: PathBuf,
    /// Every file that was read, once.
    pub(super) files: Vec<PathBuf>,
    /// Agent names of the current tree, and the files that define them.
    names: HashMap<String, PathBuf>,
    /// The files from the root to the current one, also through agents that are called as tools.
    open: Vec<PathBuf>,
    /// The largest length of `open` since the current tree was begun.
    deepest: usize,
    /// The agents that are called as tools, by file. Several agents may call the same one.
    tool_agents: HashMap<PathBuf, ToolAgent>,
}

/// An agent that is called as a tool: the root of its own tree.
struct ToolAgent {
    agent: Agent,
    /// Levels of files in it.
    height: usize,
}

impl<'a> TreeLoader<'a> {
    pub(super) fn new(options: &'a AgentLoader<'a>, folder: PathBuf) -> Self {
        let (names, tool_agents) = (HashMap::new(), HashMap::new());
        Self { options, folder, files: Vec::new(), names, open: Vec::new(), deepest: 0, tool_agents }
    }

    pub(super) fn agent(&mut self, path: &Path) -> Result<Agent, ConfigError> {
        self.check_not_excluded(path)?;
        let text = read(path)?;
        if !self.files.iter().any(|file| file == path) {
            self.files.push(path.to_path_buf());
        }
        self.open.push(path.to_path_buf());
        self.deepest = self.deepest.max(self.open.len());
        let config: AgentConfig = serde_yaml::from_str(&text).map_err(|error| ConfigError::syntax(path, &error))?;
        let source = Source { path, text: &text };
        let agent = self.build(config, &source)?;
        self.open.pop();
        Ok(agent)
    }

    fn build(&mut self, config: AgentConfig, source: &Source<'_>) -> Result<Agent, ConfigError> {
        if let AgentClass::Registered(class) = &config.agent_class
            && !self.options.agent_classes.is_some_and(|classes| classes.contains(class))
        {
            return Err(source.error("agent_class", class, self.unknown_class(class)));
        }
        if let Some((key, class)) = config.misplaced_key() {
            let message = format!("`{key}` is a key of {class}, but this is a {}", config.agent_class.name());
            return Err(source.error(&key, "", message));
        }
        if let Some(key) = config.zero_limit() {
            let message =
                format!("`{key}` is 0, so the agent could do nothing; raise it, or leave it out for no limit");
            return Err(source.error(key, "", message));
        }
        if config.name.trim().is_empty() {
            return Err(source.error("name", "", "Agent name is required: add `name: …`".into()));
        }
        self.check_agent_name(&config.name, source)?;
        let kind = match &config.agent_class {
            AgentClass::Llm => AgentKind::Llm(Box::new(self.llm(&config, source)?)),
            AgentClass::Sequential => AgentKind::Sequential,
            AgentClass::Parallel => AgentKind::Parallel,
            AgentClass::Loop => AgentKind::Loop { max_iterations: config.max_iterations },
            AgentClass::Registered(class) => {
                let args = config.args.clone().unwrap_or_default();
                self.registered_kind(class, args).map_err(|reason| source.error("agent_class", class, reason))?
            }
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

    fn registered_kind(&self, class: &str, args: JsonMap) -> Result<AgentKind, String> {
        match self.options.agent_classes.and_then(|classes| classes.create(class, args)) {
            Some(kind) => kind.map_err(|reason| format!("agent class `{class}`: {reason}")),
            None => Err(self.unknown_class(class)),
        }
    }

    fn unknown_class(&self, class: &str) -> String {
        let registered = self.options.agent_classes.into_iter().flat_map(Factories::names);
        let known: Vec<_> = AgentClass::BUILTIN.into_iter().chain(registered).collect();
        // `Loop` for `LoopAgent`, and typing errors.
        let meant = known.iter().find(|known| known.strip_suffix("Agent") == Some(class));
        let suggested = match meant {
            Some(meant) => format!("; did you mean `{meant}`?"),
            None => suggestion(class, known.iter().copied()),
        };
        format!("agent class `{class}` not found; available: {}{suggested}", quoted_list(&known))
    }

    /// Refuses a file in an excluded folder, even if `path` leads there through links.
    fn check_not_excluded(&self, path: &Path) -> Result<(), ConfigError> {
        let excluded = self.options.excluded;
        let is_excluded = |path: PathBuf| excluded.iter().any(|folder| path.starts_with(folder));
        if excluded.is_empty() || !path.canonicalize().is_ok_and(is_excluded) {
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
        let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let instruction = non_empty(&config.instruction);
        if instruction.is_none() && config.static_instruction.is_none() {
            let message = "Agent instruction is required: add `instruction: …`".into();
            return Err(source.error("instruction", "", message));
        }
        let (mut tools, mut toolsets) = (Vec::new(), Vec::new());
        for entry in &config.tools {
            if entry.name == TOOLSET {
                toolsets.push(self.toolset(entry, source)?);
            } else if let Some(toolset) = self.named_toolset(entry, source) {
                toolsets.push(toolset?);
            } else {
                tools.push(entry);
            }
        }
        Ok(LlmAgent {
            model: self.model(config, source)?,
            instruction: template(&instruction),
            static_instruction: config::static_instruction(config.static_instruction.as_ref())
                .map_err(|message| source.error("static_instruction", "", message))?,
            global_instruction: template(&config.global_instruction),
            code_execution: self.code_execution(config, source)?,
            tools: self.tools(&tools, source)?,
            toolsets,
            planner: config::planner(config.planner.as_ref())
                .map_err(|message| source.error("planner", "", message))?,
            examples: self.examples(config.examples.as_ref(), source)?,
            include_contents: self.include_contents(config, source)?,
            input_schema: self.schema("input_schema", &config.input_schema, source)?,
            output_schema: self.schema("output_schema", &config.output_schema, source)?,
            output_key: non_empty(&config.output_key),
            max_steps: config.max_steps,
            disallow_transfer_to_parent: config.disallow_transfer_to_parent,
            disallow_transfer_to_peers: config.disallow_transfer_to_peers,
            generate_content_config: config::generate_content_config(config.generate_content_config.clone())
                .map_err(|message| source.error("generate_content_config", "", message))?,
            callbacks: self.callbacks(config, |point| !point.is_for_all_agents(), source)?,
            capabilities: None,
        })
    }

    /// Returns the model that an agent names, with its fallback models.
    fn model(&self, config: &AgentConfig, source: &Source<'_>) -> Result<Option<ModelRef>, ConfigError> {
        let name = config.model.clone().filter(|name| !name.trim().is_empty());
        if config.fallback.iter().any(|name| name.trim().is_empty()) {
            return Err(source.error("fallback", "", "`fallback` has an empty name; name models".into()));
        }
        match (name, config.fallback.as_slice()) {
            (None, [_, ..]) => {
                let message = "`fallback` needs a `model` in the same file; the model of another agent has its own";
                Err(source.error("fallback", "", message.into()))
            }
            (name, []) => Ok(name.map(ModelRef::Named)),
            (Some(name), others) => Ok(Some(ModelRef::WithFallback(name, others.to_vec()))),
        }
    }

    fn schema(&self, key: &str, schema: &Option<Value>, source: &Source<'_>) -> Result<Option<Value>, ConfigError> {
        if let Some(class) = schema.as_ref().and_then(config::code_reference) {
            let message =
                format!("`{key}` names the class `{class}`, which the host cannot load; write its JSON Schema");
            return Err(source.error(key, "", message));
        }
        match schema.as_ref().and_then(schema::validation_error) {
            Some(reason) => Err(source.error(key, "", format!("`{key}` is not a JSON Schema: {reason}"))),
            None => Ok(schema.clone()),
        }
    }

    fn code_execution(&self, config: &AgentConfig, source: &Source<'_>) -> Result<Option<CodeExecution>, ConfigError> {
        let Some(executor) = &config.code_executor else { return Ok(None) };
        code::code_execution(executor, self.options.resolver).map(Some).map_err(|error| match error {
            code::CodeExecutorError::Value(message) => source.error("code_executor", "", message),
            code::CodeExecutorError::Name(name, error) => source.resolve_error("code_executor", &name, &error),
        })
    }

    fn include_contents(&self, config: &AgentConfig, source: &Source<'_>) -> Result<IncludeContents, ConfigError> {
        match config.include_contents.as_deref() {
            None => Ok(IncludeContents::Default),
            Some(value) if value.eq_ignore_ascii_case("default") => Ok(IncludeContents::Default),
            Some(value) if value.eq_ignore_ascii_case("none") => Ok(IncludeContents::None),
            Some(value) => {
                let message = format!("`include_contents` can be `default` or `none`, not `{value}`");
                Err(source.error("include_contents", value, message))
            }
        }
    }

    fn examples(&self, examples: Option<&Value>, source: &Source<'_>) -> Result<Option<Examples>, ConfigError> {
        let error = |message: String| source.error("examples", "", message);
        match examples {
            None => Ok(None),
            Some(Value::String(name)) => match self.options.resolver.examples(name) {
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

    fn callbacks(
        &self,
        config: &AgentConfig,
        is_included: impl Fn(HookPoint) -> bool,
        source: &Source<'_>,
    ) -> Result<Callbacks, ConfigError> {
        let mut callbacks = Callbacks::default();
        for (point, names) in config.callbacks().into_iter().filter(|(point, _)| is_included(*point)) {
            for NameRef { name } in names {
                let callback = self.options.resolver.callback(name);
                let callback = callback.and_then(|callback| match callback.check_point(point) {
                    Ok(()) => Ok(callback),
                    Err(reason) => Err(ResolveError::Unusable { kind: ItemKind::Callback, name: name.clone(), reason }),
                });
                let callback =
                    callback.map_err(|error| source.resolve_error(&config::callbacks_key(point), name, &error))?;
                callbacks.push(point, callback);
            }
        }
        Ok(callbacks)
    }

    pub(super) fn sub_agent(&mut self, sub_agent: &SubAgentRef, source: &Source<'_>) -> Result<Agent, ConfigError> {
        match self.reference(sub_agent, source)? {
            AgentRef::Component(agent) => Ok(*agent),
            AgentRef::File(path) => {
                // Agent names are unique, so a second use of a file in a tree could never be loaded.
                if self.open.contains(&path) || self.names.values().any(|used| *used == path) {
                    let problem = "is used already; an agent has one parent, and cannot be below itself";
                    return Err(file_error(sub_agent, source, problem));
                }
                self.check_depth(1, sub_agent, source)?;
                self.agent(&path)
            }
        }
    }

    /// Returns an agent that another one calls as a tool.
    pub(super) fn tool_agent(&mut self, agent: &SubAgentRef, source: &Source<'_>) -> Result<Agent, ConfigError> {
        let path = match self.reference(agent, source)? {
            AgentRef::Component(agent) => return Ok(*agent),
            AgentRef::File(path) => path,
        };
        if self.open.contains(&path) {
            return Err(file_error(agent, source, "is this agent, or calls it; an agent cannot call itself as a tool"));
        }
        if let Some(ToolAgent { agent: loaded, height }) = self.tool_agents.get(&path) {
            self.check_depth(*height, agent, source)?;
            self.deepest = self.deepest.max(self.open.len() + height);
            return Ok(loaded.clone());
        }
        self.check_depth(1, agent, source)?;
        let (names, deepest) = (mem::take(&mut self.names), mem::take(&mut self.deepest));
        let loaded = self.agent(&path)?;
        let height = self.deepest.saturating_sub(self.open.len());
        (self.names, self.deepest) = (names, self.deepest.max(deepest));
        self.tool_agents.insert(path, ToolAgent { agent: loaded.clone(), height });
        Ok(loaded)
    }

    /// Refuses files that are nested too deeply; `height` is the number of levels of the next ones.
    fn check_depth(&self, height: usize, agent: &SubAgentRef, source: &Source<'_>) -> Result<(), ConfigError> {
        if self.open.len() + height <= MAX_DEPTH {
            return Ok(());
        }
        Err(file_error(agent, source, &format!("is nested more than {MAX_DEPTH} files deep")))
    }

    /// Finds the agent or the file that a reference names.
    fn reference(&self, agent: &SubAgentRef, source: &Source<'_>) -> Result<AgentRef, ConfigError> {
        let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        match (non_empty(&agent.config_path), non_empty(&agent.code)) {
            (Some(path), None) => self.path(&path, source).map(AgentRef::File),
            (None, Some(name)) => {
                let found = self.options.resolver.agent(&name);
                let found = found.map_err(|error| source.resolve_error("sub_agents", &name, &error))?;
                Ok(AgentRef::Component(Box::new(found)))
            }
            (None, None) | (Some(_), Some(_)) => {
                let message =
                    "a sub-agent needs either `config_path` (a YAML file) or `code` (an agent of a component)".into();
                Err(source.error("sub_agents", "", message))
            }
        }
    }

    /// Returns the path of a file in the agent's folder.
    fn path(&self, relative: &str, source: &Source<'_>) -> Result<PathBuf, ConfigError> {
        let error = |message| Err(source.error("config_path", relative, message));
        let is_below =
            Path::new(relative).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_below {
            return error(format!("`{relative}` leaves the agent's folder; move the file there"));
        }
        let path: PathBuf = source.path.parent().unwrap_or(&self.folder).join(relative).components().collect();
        if !path.is_file() {
            return error(format!("there is no file `{relative}`{}", suggest_file(&path)));
        }
        let is_inside = |path: &Path| Some(path.canonicalize().ok()?.starts_with(self.folder.canonicalize().ok()?));
        if is_inside(&path) != Some(true) {
            return error(format!("`{relative}` leads out of the agent's folder; move the file there"));
        }
        Ok(path)
    }
}

/// The agent that a reference names.
enum AgentRef {
    /// An agent of a component.
    Component(Box<Agent>),
    /// A file that defines an agent.
    File(PathBuf),
}

/// Returns the error of a file that cannot be used where `agent` refers to it.
fn file_error(agent: &SubAgentRef, source: &Source<'_>, problem: &str) -> ConfigError {
    let file = agent.config_path.as_deref().unwrap_or_default();
    source.error("config_path", file, format!("`{file}` {problem}"))
}

/// Returns the end of a message for a missing file: the file in its folder that may be meant.
fn suggest_file(missing: &Path) -> String {
    let entries = missing.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten();
    let names: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let name = missing.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    suggestion(&name, names.iter().map(String::as_str))
}
