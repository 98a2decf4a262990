//! Templates of new components and agents, embedded in the binary.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;

/// What a template makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A component with an agent, a tool and a script for its model.
    Agent,
    /// A component with a tool.
    Tool,
    /// A component with a callback.
    Callback,
    /// An agent in YAML.
    Yaml,
}

/// Path in the new folder, and text.
type File = (&'static str, &'static str);

const MANIFEST: File = ("Cargo.toml", include_str!("../templates/Cargo.toml"));
const IGNORED: File = (".gitignore", include_str!("../templates/gitignore"));

impl Kind {
    fn files(self) -> &'static [File] {
        match self {
            Self::Agent => &[
                MANIFEST,
                IGNORED,
                ("src/lib.rs", include_str!("../templates/agent/lib.rs")),
                ("answers.yaml", include_str!("../templates/agent/answers.yaml")),
            ],
            Self::Tool => &[MANIFEST, IGNORED, ("src/lib.rs", include_str!("../templates/tool/lib.rs"))],
            Self::Callback => &[MANIFEST, IGNORED, ("src/lib.rs", include_str!("../templates/callback/lib.rs"))],
            Self::Yaml => &[
                ("root_agent.yaml", include_str!("../templates/yaml/root_agent.yaml")),
                ("answers.yaml", include_str!("../templates/yaml/answers.yaml")),
                ("conversation.yaml", include_str!("../templates/yaml/conversation.yaml")),
            ],
        }
    }

    /// True for what cargo builds.
    pub fn is_component(self) -> bool {
        match self {
            Self::Agent | Self::Tool | Self::Callback => true,
            Self::Yaml => false,
        }
    }
}

/// Where a component finds the guest SDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sdk {
    /// In a folder.
    Path(PathBuf),
    /// In the registry.
    Version(&'static str),
}

impl fmt::Display for Sdk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{{ path = {:?} }}", path.display().to_string()),
            Self::Version(version) => write!(f, "{version:?}"),
        }
    }
}

/// A name that can be a crate, a file, an agent and, with `_` for `-`, a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl std::str::FromStr for Name {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err("a name starts with a lower-case letter");
        }
        if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_')) {
            return Err("a name holds only lower-case letters, digits, `-` and `_`");
        }
        if RESERVED.contains(&name) {
            return Err("this name means something else in Rust or to agents; choose another");
        }
        Ok(Self(name.to_owned()))
    }
}

/// Keywords, and names that other things have already.
const RESERVED: [&str; 42] = [
    "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "gen", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self",
    "static", "struct", "super", "test", "trait", "true", "type", "unsafe", "use", "user", "where", "while", "tool",
    "agent",
];

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Name {
    /// As a Rust function.
    pub fn function(&self) -> String {
        self.0.replace('-', "_")
    }
}

/// Writes the files of a template into a folder, which must not hold anything yet. Gives their paths.
pub fn write(kind: Kind, name: &Name, sdk: &Sdk, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if folder.is_file() || folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} exists already; choose another name, or another place with --path", folder.display());
    }
    let mut written = Vec::new();
    for (path, text) in kind.files() {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        std::fs::write(&path, render(text, name, sdk)).with_context(|| path.display().to_string())?;
        written.push(path);
    }
    Ok(written)
}

fn render(text: &str, name: &Name, sdk: &Sdk) -> String {
    text.replace("@NAME@", &name.0).replace("@FUNCTION@", &name.function()).replace("@SDK@", &sdk.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Conversation;

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    #[test]
    fn names_must_suit_everything_that_gets_them() {
        for good in ["dice", "my-tool", "a_1"] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        assert_eq!("Dice".parse::<Name>(), Err("a name starts with a lower-case letter"));
        assert_eq!("".parse::<Name>(), Err("a name starts with a lower-case letter"));
        assert_eq!("../x".parse::<Name>(), Err("a name starts with a lower-case letter"));
        assert_eq!("a/b".parse::<Name>(), Err("a name holds only lower-case letters, digits, `-` and `_`"));
        assert_eq!("user".parse::<Name>(), Err("this name means something else in Rust or to agents; choose another"));
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        for kind in Kind::value_variants() {
            for (path, text) in kind.files() {
                let text = render(text, &name("my-thing"), &Sdk::Version("0.1"));
                assert!(!text.contains('@'), "{kind:?} {path}: {text}");
            }
        }
    }

    #[test]
    fn a_component_depends_on_the_sdk_by_path_or_version() {
        let (_, manifest) = MANIFEST;
        let by_path = render(manifest, &name("dice"), &Sdk::Path("../guest-sdk/rust".into()));
        assert!(by_path.contains("hatchery-guest = { path = \"../guest-sdk/rust\" }\n"), "{by_path}");
        assert!(by_path.contains("name = \"dice\"\n"), "{by_path}");
        assert!(render(manifest, &name("dice"), &Sdk::Version("0.1")).contains("hatchery-guest = \"0.1\"\n"));
    }

    #[test]
    fn a_folder_that_holds_something_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine"), "x").unwrap();
        let error = write(Kind::Yaml, &name("dice"), &Sdk::Version("0.1"), folder.path()).unwrap_err();
        assert!(error.to_string().contains("exists already"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_are_written_with_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let written = write(Kind::Tool, &name("my-tool"), &Sdk::Version("0.1"), &folder.path().join("new")).unwrap();
        assert_eq!(written.len(), 3);
        let code = std::fs::read_to_string(folder.path().join("new/src/lib.rs")).unwrap();
        assert!(code.contains("async fn my_tool("), "{code}");
    }

    #[test]
    fn the_conversation_of_a_yaml_agent_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        write(Kind::Yaml, &name("dice"), &Sdk::Version("0.1"), &folder.path().join("dice")).unwrap();
        let file = folder.path().join("dice/conversation.yaml");
        let conversation = Conversation::parse(&std::fs::read_to_string(&file).unwrap(), &file).unwrap();
        assert_eq!(conversation.app, "dice");
    }
}
