//! The agents and tools of an app as a graph in the DOT language. The ids of nodes are the names, by which clients find
//! them.

use std::collections::BTreeSet;
use std::fmt::Write;

use hatchery_core::{AgentId, AgentKind, Event, USER_AUTHOR};
use hatchery_engine::App;

/// The colours of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    Light,
    Dark,
}

/// The trace of an event in the graph: its agents and tools, and the edges between them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    nodes: BTreeSet<String>,
    /// From, to.
    edges: BTreeSet<(String, String)>,
    /// Edges that were taken from their end to their beginning, by responses.
    returns: BTreeSet<(String, String)>,
}

impl Path {
    /// Returns the path of an event: from the root to its agent, then to the tools and agents that the agent called.
    pub(crate) fn new(app: &App, event: &Event) -> Self {
        let mut path = Self::default();
        let Some(author) = app.tree.find_agent(&event.author).filter(|_| event.author != USER_AUTHOR) else {
            return path;
        };
        let name = |id: AgentId| app.tree.agent(id).name.clone();
        path.nodes.insert(name(author));
        let mut below = author;
        for ancestor in app.tree.ancestors(author) {
            path.nodes.insert(name(ancestor));
            path.edges.insert((name(ancestor), name(below)));
            below = ancestor;
        }
        for call in event.function_calls() {
            path.nodes.insert(call.name.clone());
            path.edges.insert((event.author.clone(), call.name.clone()));
        }
        for response in event.function_responses() {
            path.nodes.insert(response.name.clone());
            path.returns.insert((event.author.clone(), response.name.clone()));
        }
        if let Some(target) = &event.actions.transfer_to_agent {
            path.nodes.insert(target.clone());
            path.edges.insert((event.author.clone(), target.clone()));
        }
        path
    }

    /// Returns true if the event has no agent of the app.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Returns the graph of an agent and everything below it.
pub(crate) fn dot(app: &App, root: AgentId, path: &Path, theme: Theme) -> String {
    let (background, line, text) = match theme {
        Theme::Light => ("#ffffff", "#5f6368", "#202124"),
        Theme::Dark => ("#202124", "#9aa0a6", "#e8eaed"),
    };
    let mut graph =
        Graph { path, highlight: "#34a853", nodes: String::new(), edges: String::new(), drawn: BTreeSet::new() };
    graph.add_agent(app, root);
    graph.add_extra_edges();
    format!(
        "digraph {{\n  graph [rankdir=LR, bgcolor=\"{background}\"]\n  \
         node [color=\"{line}\", fontcolor=\"{text}\", fontname=\"sans-serif\"]\n  \
         edge [color=\"{line}\"]\n{}{}}}\n",
        graph.nodes, graph.edges
    )
}

/// Nodes and edges while they are collected.
struct Graph<'a> {
    path: &'a Path,
    highlight: &'static str,
    nodes: String,
    edges: String,
    /// The nodes and edges that exist. A node is an edge to itself.
    drawn: BTreeSet<(String, String)>,
}

impl Graph<'_> {
    fn add_agent(&mut self, app: &App, id: AgentId) {
        let agent = app.tree.agent(id);
        let shape = match agent.kind {
            AgentKind::Llm(_) | AgentKind::Custom(_) => "ellipse",
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => "component",
        };
        self.add_node(&agent.name, &format!("{}\\n({})", escape(&agent.name), agent.kind.label()), shape);
        for tool in tool_names(app, id) {
            self.add_node(&tool, &escape(&tool), "box");
            self.add_edge(&agent.name, &tool, "dashed");
        }
        let children = app.tree.children(id);
        for child in children {
            self.add_agent(app, *child);
            self.add_edge(&agent.name, &app.tree.agent(*child).name, "solid");
        }
        // The order in which they run.
        if let AgentKind::Sequential | AgentKind::Loop { .. } = agent.kind {
            let names: Vec<_> = children.iter().map(|child| app.tree.agent(*child).name.as_str()).collect();
            for (one, next) in names.iter().zip(names.iter().skip(1)) {
                self.add_edge(one, next, "dotted");
            }
            if let (AgentKind::Loop { .. }, [first, .., last]) = (&agent.kind, names.as_slice()) {
                self.add_edge(last, first, "dotted");
            }
        }
    }

    fn add_node(&mut self, name: &str, label: &str, shape: &str) {
        if !self.drawn.insert((name.to_owned(), name.to_owned())) {
            return;
        }
        let style = if self.path.nodes.contains(name) {
            format!(", style=filled, fillcolor=\"{}\", fontcolor=\"#ffffff\"", self.highlight)
        } else {
            String::new()
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.nodes, "  \"{}\" [label=\"{label}\", shape={shape}{style}]", escape(name));
    }

    fn add_edge(&mut self, from: &str, to: &str, style: &str) {
        let edge = (from.to_owned(), to.to_owned());
        if from == to || !self.drawn.insert(edge.clone()) {
            return;
        }
        let highlight = format!(", color=\"{}\", penwidth=2", self.highlight);
        let (highlight, direction) = match (self.path.edges.contains(&edge), self.path.returns.contains(&edge)) {
            (true, _) => (highlight, ""),
            (false, true) => (highlight, ", dir=back"),
            (false, false) => (String::new(), ""),
        };
        let _ =
            writeln!(self.edges, "  \"{}\" -> \"{}\" [style={style}{highlight}{direction}]", escape(from), escape(to));
    }

    /// Adds edges that the structure of the app does not have: a transfer to a peer, a call of an unknown tool.
    fn add_extra_edges(&mut self) {
        let path = self.path;
        for name in &path.nodes {
            self.add_node(name, &escape(name), "box");
        }
        for (from, to) in path.edges.iter().chain(&path.returns) {
            self.add_edge(from, to, "dashed");
        }
    }
}

/// Returns the names of those tools of an agent that are known without a run.
pub(crate) fn tool_names(app: &App, id: AgentId) -> Vec<String> {
    let (tools, toolsets) = match &app.tree.agent(id).kind {
        AgentKind::Llm(llm) => (llm.tools.as_slice(), llm.toolsets.as_slice()),
        AgentKind::Custom(custom) => (custom.tools.as_slice(), [].as_slice()),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => return Vec::new(),
    };
    let tools = tools.iter().map(|tool| tool.declaration().name.clone());
    tools.chain(toolsets.iter().flat_map(|toolset| toolset.tool_names().unwrap_or_default())).collect()
}

/// Returns a text for a quoted string of DOT, on one line.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, EventActions, EventData, FunctionCall, FunctionResponse, JsonMap, Part, PartData};
    use hatchery_engine::build::{function_tool, llm, loop_agent, sequential};
    use std::sync::Arc;

    use super::*;

    fn app() -> App {
        let tool = function_tool("book", "Books.", |_: JsonMap, _| async { Ok(()) });
        let planner = llm("planner").model("m").tool(tool);
        let refine = loop_agent("refine").sub_agent(llm("critic").model("m")).sub_agent(llm("writer").model("m"));
        let team = sequential("team").sub_agent(planner).sub_agent(refine);
        App::new("trip", llm("root").model("m").sub_agent(team).build().unwrap()).unwrap()
    }

    fn event(author: &str, part: Option<PartData>, transfer: Option<&str>) -> Arc<Event> {
        let content = part.map(|data| Arc::new(Content::new("model", vec![Part::from(data)])));
        let actions = EventActions { transfer_to_agent: transfer.map(Into::into), ..EventActions::default() };
        Event::new(EventData { author: author.into(), content, actions, ..EventData::default() })
    }

    fn highlighted(app: &App, event: &Event) -> Vec<String> {
        let dot = dot(app, app.root_id(), &Path::new(app, event), Theme::Light);
        let lines = dot.lines().filter(|line| line.contains("#34a853"));
        lines.map(|line| line.trim().split(" [").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn agents_tools_and_the_order_of_workflows_are_drawn() {
        let app = app();
        let dot = dot(&app, app.root_id(), &Path::default(), Theme::Dark);
        for line in [
            "  graph [rankdir=LR, bgcolor=\"#202124\"]",
            "  \"root\" [label=\"root\\n(llm)\", shape=ellipse]",
            "  \"team\" [label=\"team\\n(sequential)\", shape=component]",
            "  \"book\" [label=\"book\", shape=box]",
            "  \"planner\" -> \"book\" [style=dashed]",
            "  \"team\" -> \"refine\" [style=solid]",
            "  \"planner\" -> \"refine\" [style=dotted]",
            "  \"critic\" -> \"writer\" [style=dotted]",
            "  \"writer\" -> \"critic\" [style=dotted]",
        ] {
            assert!(dot.lines().any(|it| it == line), "{line} is not in {dot}");
        }
        let team = super::dot(&app, app.tree.find_agent("team").unwrap(), &Path::default(), Theme::Light);
        assert!(!team.contains("root") && team.contains("\"critic\""), "{team}");
    }

    #[test]
    fn the_path_of_an_event_is_highlighted() {
        let app = app();
        let way = ["\"root\"", "\"team\"", "\"planner\"", "\"root\" -> \"team\"", "\"team\" -> \"planner\""];
        let replied = highlighted(&app, &event("planner", Some(PartData::Text("Hi".into())), None));
        assert_eq!(sorted(replied), sorted(way));
        let call = FunctionCall { name: "book".into(), ..FunctionCall::default() };
        let called = highlighted(&app, &event("planner", Some(PartData::FunctionCall(call)), None));
        assert_eq!(sorted(called), sorted(way.into_iter().chain(["\"book\"", "\"planner\" -> \"book\""])));
        let unknown = FunctionCall { name: "a \"b\"\n".into(), ..FunctionCall::default() };
        let called = highlighted(&app, &event("root", Some(PartData::FunctionCall(unknown)), None));
        assert_eq!(sorted(called), sorted(["\"root\"", "\"a \\\"b\\\" \"", "\"root\" -> \"a \\\"b\\\" \""]));
        let moved = highlighted(&app, &event("critic", None, Some("root")));
        assert!(moved.contains(&"\"critic\" -> \"root\"".to_owned()), "{moved:?}");
    }

    #[test]
    fn a_response_is_the_way_back_and_a_message_of_the_user_has_no_path() {
        let app = app();
        let response = FunctionResponse { name: "book".into(), ..FunctionResponse::default() };
        let answered = event("planner", Some(PartData::FunctionResponse(response)), None);
        let dot = dot(&app, app.root_id(), &Path::new(&app, &answered), Theme::Light);
        assert!(
            dot.contains("\"planner\" -> \"book\" [style=dashed, color=\"#34a853\", penwidth=2, dir=back]"),
            "{dot}"
        );
        assert!(Path::new(&app, &event("user", None, None)).is_empty());
        assert!(Path::new(&app, &event("nobody", None, None)).is_empty());
    }

    fn sorted<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Vec<String> {
        let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
        names.sort();
        names
    }
}
