//! Templates of new components and agents, embedded in the binary.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::languages::Language;

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

/// Embeds a file of a template, under its own name or another one.
macro_rules! template {
    ($path:literal as $name:literal) => {
        ($name, include_str!(concat!("../templates/", $path)))
    };
}

const MANIFEST: File = ("Cargo.toml", include_str!("../templates/Cargo.toml"));
const IGNORED: File = (".gitignore", include_str!("../templates/gitignore"));

impl Kind {
    fn files(self, language: Language) -> Vec<File> {
        match (self, language) {
            (Self::Yaml, _) => vec![
                template!("yaml/root_agent.yaml" as "root_agent.yaml"),
                template!("yaml/answers.yaml" as "answers.yaml"),
                template!("yaml/conversation.yaml" as "conversation.yaml"),
            ],
            (kind, Language::Rust) => kind.rust(),
            (kind, Language::Python) => kind.python(),
            (kind, Language::JavaScript) => kind.javascript(),
        }
    }

    fn rust(self) -> Vec<File> {
        let mut files = vec![MANIFEST, IGNORED];
        match self {
            Self::Tool => files.push(template!("tool/lib.rs" as "src/lib.rs")),
            Self::Callback => files.push(template!("callback/lib.rs" as "src/lib.rs")),
            Self::Agent | Self::Yaml => files
                .extend([template!("agent/lib.rs" as "src/lib.rs"), template!("agent/answers.yaml" as "answers.yaml")]),
        }
        files
    }

    fn python(self) -> Vec<File> {
        let mut files = vec![
            template!("python/pyproject.toml" as "pyproject.toml"),
            template!("python/gitignore" as ".gitignore"),
            template!("python/README.md" as "README.md"),
        ];
        let own = match self {
            Self::Tool => {
                [template!("python/tool/app.py" as "app.py"), template!("python/tool/test_app.py" as "test_app.py")]
            }
            Self::Callback => [
                template!("python/callback/app.py" as "app.py"),
                template!("python/callback/test_app.py" as "test_app.py"),
            ],
            Self::Agent | Self::Yaml => {
                files.push(template!("agent/answers.yaml" as "answers.yaml"));
                [template!("python/agent/app.py" as "app.py"), template!("python/agent/test_app.py" as "test_app.py")]
            }
        };
        files.extend(own);
        files
    }

    fn javascript(self) -> Vec<File> {
        let mut files = vec![
            template!("js/package.json" as "package.json"),
            template!("js/gitignore" as ".gitignore"),
            template!("js/README.md" as "README.md"),
        ];
        let own = match self {
            Self::Tool => {
                [template!("js/tool/index.js" as "index.js"), template!("js/tool/index.test.js" as "index.test.js")]
            }
            Self::Callback => [
                template!("js/callback/index.js" as "index.js"),
                template!("js/callback/index.test.js" as "index.test.js"),
            ],
            Self::Agent | Self::Yaml => {
                files.push(template!("agent/answers.yaml" as "answers.yaml"));
                [template!("js/agent/index.js" as "index.js"), template!("js/agent/index.test.js" as "index.test.js")]
            }
        };
        files.extend(own);
        files
    }

    /// True for what is built.
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

impl Sdk {
    /// As a manifest of the language says it.
    fn written_for(&self, language: Language) -> String {
        match (self, language) {
            (Self::Path(path), Language::Rust) => format!("{{ path = {:?} }}", path.display().to_string()),
            (Self::Version(version), Language::Rust) => format!("{version:?}"),
            (Self::Path(path), Language::Python) => path.display().to_string(),
            (Self::Version(version), Language::Python) => format!("\"hatchery-guest~={version}.0\""),
            (Self::Path(path), Language::JavaScript) => format!("file:{}", path.display()),
            (Self::Version(version), Language::JavaScript) => format!("^{version}.0"),
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
pub fn write(kind: Kind, language: Language, name: &Name, sdk: &Sdk, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if folder.is_file() || folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} exists already; choose another name, or another place with --path", folder.display());
    }
    let mut written = Vec::new();
    for (path, text) in kind.files(language) {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        std::fs::write(&path, render(text, name, &sdk.written_for(language)))
            .with_context(|| path.display().to_string())?;
        written.push(path);
    }
    Ok(written)
}

fn render(text: &str, name: &Name, sdk: &str) -> String {
    text.replace("@NAME@", &name.0).replace("@FUNCTION@", &name.function()).replace("@SDK@", sdk)
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
            for language in [Language::Rust, Language::Python, Language::JavaScript] {
                for (path, text) in kind.files(language) {
                    let text = render(text, &name("my-thing"), &Sdk::Version("0.1").written_for(language));
                    for place in ["@NAME@", "@FUNCTION@", "@SDK@"] {
                        assert!(!text.contains(place), "{kind:?} {language:?} {path}: {text}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_component_depends_on_the_sdk_by_path_or_version() {
        let (_, manifest) = MANIFEST;
        let written = |sdk: Sdk, language| sdk.written_for(language);
        let path = written(Sdk::Path("../guest-sdk/rust".into()), Language::Rust);
        let by_path = render(manifest, &name("dice"), &path);
        assert!(by_path.contains("hatchery-guest = { path = \"../guest-sdk/rust\" }\n"), "{by_path}");
        assert!(by_path.contains("name = \"dice\"\n"), "{by_path}");
        let version = written(Sdk::Version("0.1"), Language::Rust);
        assert!(render(manifest, &name("dice"), &version).contains("hatchery-guest = \"0.1\"\n"));
        assert_eq!(written(Sdk::Version("0.1"), Language::Python), "\"hatchery-guest~=0.1.0\"");
        assert_eq!(written(Sdk::Version("0.1"), Language::JavaScript), "^0.1.0");
        assert_eq!(written(Sdk::Path("../js".into()), Language::JavaScript), "file:../js");
    }

    #[test]
    fn a_folder_that_holds_something_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine"), "x").unwrap();
        let error = write(Kind::Yaml, Language::Rust, &name("dice"), &Sdk::Version("0.1"), folder.path()).unwrap_err();
        assert!(error.to_string().contains("exists already"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_are_written_with_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let written =
            write(Kind::Tool, Language::Rust, &name("my-tool"), &Sdk::Version("0.1"), &folder.path().join("new"))
                .unwrap();
        assert_eq!(written.len(), 3);
        let code = std::fs::read_to_string(folder.path().join("new/src/lib.rs")).unwrap();
        assert!(code.contains("async fn my_tool("), "{code}");
    }

    #[test]
    fn the_conversation_of_a_yaml_agent_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        write(Kind::Yaml, Language::Rust, &name("dice"), &Sdk::Version("0.1"), &folder.path().join("dice")).unwrap();
        let file = folder.path().join("dice/conversation.yaml");
        let conversation = Conversation::parse(&std::fs::read_to_string(&file).unwrap(), &file).unwrap();
        assert_eq!(conversation.app, "dice");
    }
}
