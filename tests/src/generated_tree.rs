//! Generated trees of agents: YAML files, scripts, and agents in code of the component `errands`. Each tool call of a
//! tree has one effect with its own name.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{Folder, paths};

/// The agents in code of the component `errands`.
const CLERKS: [&str; 2] = ["first_clerk", "second_clerk"];

/// A tree, below a sequential root.
#[derive(Debug)]
pub struct Tree(Vec<Node>);

/// A node of a tree.
#[derive(Debug)]
enum Node {
    /// A model that makes its calls at once.
    Calls { agent: String, kind: CallKind, count: usize },
    /// Code that makes its calls in sequence.
    Code { agent: &'static str, count: usize },
    /// A model that calls an agent as a tool, which makes its calls at once.
    Delegates { agent: String, count: usize },
    /// Agents in sequence.
    Sequential { agent: String, nodes: Vec<Node> },
    /// Agents at the same time.
    Parallel { agent: String, nodes: Vec<Node> },
}

/// The calls of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CallKind {
    Plain,
    /// A person must confirm each.
    Confirmed,
    /// Not idempotent: each is made at most once.
    Once,
}

/// A generator of numbers that are determined by a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((number ^ (number >> 31)) % limit as u64) as usize
    }
}

/// Generates the nodes of one tree.
struct Generator {
    numbers: Numbers,
    agents: usize,
    clerks: std::array::IntoIter<&'static str, 2>,
}

impl Generator {
    fn name(&mut self) -> String {
        self.agents += 1;
        format!("a{}", self.agents)
    }

    fn node(&mut self, depth: usize) -> Node {
        let (agent, count) = (self.name(), 1 + self.numbers.below(3));
        match self.numbers.below(if depth == 0 { 5 } else { 8 }) {
            0 => Node::Calls { agent, kind: CallKind::Plain, count },
            1 => Node::Calls { agent, kind: CallKind::Confirmed, count: count.min(2) },
            2 => Node::Calls { agent, kind: CallKind::Once, count },
            3 => match self.clerks.next() {
                Some(agent) => Node::Code { agent, count },
                None => Node::Calls { agent, kind: CallKind::Plain, count },
            },
            4 => Node::Delegates { agent, count },
            5 => Node::Sequential { agent, nodes: self.nodes(2, depth - 1) },
            _ => Node::Parallel { agent, nodes: self.nodes(2, depth - 1) },
        }
    }

    fn nodes(&mut self, count: usize, depth: usize) -> Vec<Node> {
        (0..count).map(|_| self.node(depth)).collect()
    }
}

impl Tree {
    /// Returns the tree of a seed.
    pub fn generate(seed: u64) -> Self {
        let mut generator = Generator { numbers: Numbers(seed), agents: 0, clerks: CLERKS.into_iter() };
        let count = 2 + generator.numbers.below(2);
        Self(generator.nodes(count, 1))
    }

    /// Writes the files of an app `tree` and the configuration, for effects on a server.
    ///
    /// # Errors
    /// If a file cannot be written, or the component has not been built.
    pub fn write(&self, folder: &Folder, server: &str) -> anyhow::Result<()> {
        let mut files = Vec::new();
        let root = sequence("tree", "SequentialAgent", self.0.iter(), &mut files);
        files.push(("root_agent.yaml".into(), root));
        for (name, content) in files {
            folder.write(&format!("tree/{name}"), content.to_string())?;
        }
        folder.write("errands.wasm", paths::component("errands")?)?;
        let host = server.trim_start_matches("http://");
        let plan: serde_json::Map<_, _> = self
            .nodes()
            .filter(|node| matches!(node, Node::Code { .. }))
            .map(|node| (node.agent().into(), json!(node.own_effects())))
            .collect();
        let grants = json!({"network": [server], "private_network": [host], "idempotency_keys": [server]});
        let errands = json!({"config": {"server": server, "plan": plan}, "grants": grants});
        let config = json!({
            "server": {"turn_lease": "500ms"}, "apps": {"tree": {"resumable": true}}, "components": {"errands": errands},
        });
        folder.write("hatchery.yaml", config.to_string())
    }

    /// Returns the names of the kinds of agents and calls in the tree.
    pub fn kinds(&self) -> BTreeSet<&'static str> {
        let kind = |node: &Node| match node {
            Node::Calls { kind: CallKind::Plain, count: 1, .. } => "one call",
            Node::Calls { kind: CallKind::Plain, .. } => "parallel calls",
            Node::Calls { kind: CallKind::Confirmed, .. } => "confirmed calls",
            Node::Calls { kind: CallKind::Once, .. } => "calls at most once",
            Node::Code { .. } => "agent in code",
            Node::Delegates { .. } => "agent as tool",
            Node::Sequential { .. } => "sequential agent",
            Node::Parallel { .. } => "parallel agent",
        };
        self.nodes().map(kind).collect()
    }

    /// Returns all effects.
    pub fn effects(&self) -> Vec<String> {
        self.0.iter().flat_map(Node::effects).collect()
    }

    /// Returns the effects that happen at most once, whatever happens to the host.
    pub fn effects_once(&self) -> BTreeSet<String> {
        let is_once = |node: &&Node| matches!(node, Node::Calls { kind: CallKind::Once, .. });
        self.nodes().filter(is_once).flat_map(Node::own_effects).collect()
    }

    /// Returns pairs of effects: the first one ends before the second one begins.
    pub fn order(&self) -> Vec<(String, String)> {
        let mut order = between(&self.0);
        order.extend(self.0.iter().flat_map(Node::order));
        order
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().flat_map(Node::and_below)
    }
}

impl Node {
    fn agent(&self) -> &str {
        match self {
            Self::Code { agent, .. } => agent,
            Self::Calls { agent, .. }
            | Self::Delegates { agent, .. }
            | Self::Sequential { agent, .. }
            | Self::Parallel { agent, .. } => agent,
        }
    }

    fn below(&self) -> &[Self] {
        match self {
            Self::Sequential { nodes, .. } | Self::Parallel { nodes, .. } => nodes,
            Self::Calls { .. } | Self::Code { .. } | Self::Delegates { .. } => &[],
        }
    }

    fn and_below(&self) -> Vec<&Self> {
        std::iter::once(self).chain(self.below().iter().flat_map(Self::and_below)).collect()
    }

    fn own_effects(&self) -> Vec<String> {
        match self {
            Self::Calls { count, .. } | Self::Code { count, .. } | Self::Delegates { count, .. } => {
                (0..*count).map(|call| format!("{}-{call}", self.agent())).collect()
            }
            Self::Sequential { .. } | Self::Parallel { .. } => Vec::new(),
        }
    }

    fn effects(&self) -> Vec<String> {
        self.and_below().into_iter().flat_map(Self::own_effects).collect()
    }

    fn order(&self) -> Vec<(String, String)> {
        let own = match self {
            Self::Code { .. } => {
                let effects = self.own_effects();
                let pairs = effects.iter().enumerate().flat_map(|(index, later)| {
                    effects.iter().take(index).map(|earlier| (earlier.clone(), later.clone()))
                });
                pairs.collect()
            }
            Self::Sequential { nodes, .. } => between(nodes),
            Self::Calls { .. } | Self::Delegates { .. } | Self::Parallel { .. } => Vec::new(),
        };
        own.into_iter().chain(self.below().iter().flat_map(Self::order)).collect()
    }

    /// Adds the files of the agent and of those below it. Returns the entry in `sub_agents`.
    fn write(&self, files: &mut Vec<(String, Value)>) -> Value {
        let agent = self.agent();
        match self {
            Self::Code { .. } => return json!({"code": format!("errands/{agent}")}),
            Self::Calls { kind, .. } => {
                let tool = match kind {
                    CallKind::Plain => json!({"name": "errands/effect"}),
                    CallKind::Confirmed => json!({"name": "errands/effect", "require_confirmation": true}),
                    CallKind::Once => json!({"name": "errands/effect", "idempotent": false}),
                };
                let calls =
                    self.own_effects().into_iter().map(|name| json!({"name": "effect", "args": {"name": name}}));
                caller(agent, "effect", tool, calls.collect(), files);
            }
            Self::Delegates { .. } => {
                let helper = format!("{agent}_helper");
                let calls =
                    self.own_effects().into_iter().map(|name| json!({"name": "effect", "args": {"name": name}}));
                caller(&helper, "effect", json!({"name": "errands/effect"}), calls.collect(), files);
                let tool = json!({"name": "AgentTool", "args": {"agent": {"config_path": format!("{helper}.yaml")}}});
                caller(agent, &helper, tool, vec![json!({"name": helper, "args": {"request": "go"}})], files);
            }
            Self::Sequential { nodes, .. } | Self::Parallel { nodes, .. } => {
                let class = if matches!(self, Self::Parallel { .. }) { "ParallelAgent" } else { "SequentialAgent" };
                let content = sequence(agent, class, nodes.iter(), files);
                files.push((format!("{agent}.yaml"), content));
            }
        }
        json!({"config_path": format!("{agent}.yaml")})
    }
}

/// Adds the files of an agent whose model makes calls, and says `done` when their results are there.
fn caller(agent: &str, tool_name: &str, tool: Value, calls: Vec<Value>, files: &mut Vec<(String, Value)>) {
    let calls: Vec<_> = calls.into_iter().map(|call| json!({"call": call})).collect();
    let script =
        json!({"turns": [{"when": {"tool": tool_name}, "reply": format!("{agent} is done")}, {"reply": calls}]});
    files.push((format!("{agent}-script.yaml"), script));
    let content = json!({
        "name": agent, "description": "Makes calls.", "model": format!("scripted:tree/{agent}-script.yaml"),
        "instruction": "Make calls.", "tools": [tool], "output_key": format!("said_{agent}"),
    });
    files.push((format!("{agent}.yaml"), content));
}

fn sequence<'a>(
    agent: &str,
    class: &str,
    nodes: impl Iterator<Item = &'a Node>,
    files: &mut Vec<(String, Value)>,
) -> Value {
    let sub_agents: Vec<_> = nodes.map(|node| node.write(files)).collect();
    json!({"agent_class": class, "name": agent, "sub_agents": sub_agents})
}

/// Returns the pairs of effects of different nodes that run in sequence.
fn between(nodes: &[Node]) -> Vec<(String, String)> {
    let pairs = nodes.iter().enumerate().flat_map(|(index, later)| {
        nodes.iter().take(index).flat_map(move |earlier| {
            let later = later.effects();
            earlier
                .effects()
                .into_iter()
                .flat_map(move |one| later.clone().into_iter().map(move |other| (one.clone(), other)))
        })
    });
    pairs.collect()
}
