//! Project templates of `hatchery new`, embedded in the binary.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use hatchery_wasm::version;

use crate::languages::Language;

/// The kind of project that a template creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TemplateKind {
    /// A component with an agent, a tool and a scripted model.
    Agent,
    /// A component with a tool.
    Tool,
    /// A component with a callback.
    Callback,
    /// An agent in YAML.
    Yaml,
}

/// A file of a template: its path in the new folder, and its text with placeholders.
type TemplateFile = (&'static str, &'static str);

/// Embeds a file of a template under the name that it has in the new folder.
macro_rules! template {
    ($path:literal as $name:literal) => {
        ($name, include_str!(concat!("../templates/", $path)))
    };
}

/// Embeds the program and the test of a project, which the folder of the language has for each kind.
macro_rules! sources {
    ($kind:expr, $folder:literal, [$($file:literal),+]) => {
        match $kind {
            TemplateKind::Tool => vec![$(($file, include_str!(concat!("../templates/", $folder, "/tool/", $file)))),+],
            TemplateKind::Callback => {
                vec![$(($file, include_str!(concat!("../templates/", $folder, "/callback/", $file)))),+]
            }
            TemplateKind::Agent | TemplateKind::Yaml => vec![
                template!("agent/answers.yaml" as "answers.yaml"),
                template!("agent/conversation.yaml" as "conversation.yaml"),
                $(($file, include_str!(concat!("../templates/", $folder, "/agent/", $file)))),+
            ],
        }
    };
}

const CARGO_MANIFEST: TemplateFile = ("Cargo.toml", include_str!("../templates/Cargo.toml"));
const GITIGNORE: TemplateFile = (".gitignore", include_str!("../templates/gitignore"));

impl TemplateKind {
    fn files(self, language: Language) -> Vec<TemplateFile> {
        match (self, language) {
            (Self::Yaml, _) => vec![
                template!("yaml/root_agent.yaml" as "root_agent.yaml"),
                template!("yaml/gitignore" as ".gitignore"),
                template!("yaml/answers.yaml" as "answers.yaml"),
                template!("yaml/conversation.yaml" as "conversation.yaml"),
            ],
            (kind, Language::Rust) => kind.rust_files(),
            (kind, Language::Python) => kind.python_files(),
            (kind, Language::JavaScript) => kind.javascript_files(),
            (kind, Language::TypeScript) => kind.typescript_files(),
        }
    }

    fn rust_files(self) -> Vec<TemplateFile> {
        let mut files = vec![CARGO_MANIFEST, GITIGNORE];
        match self {
            Self::Tool => files.push(template!("tool/lib.rs" as "src/lib.rs")),
            Self::Callback => files.push(template!("callback/lib.rs" as "src/lib.rs")),
            Self::Agent | Self::Yaml => files.extend([
                template!("agent/lib.rs" as "src/lib.rs"),
                template!("agent/answers.yaml" as "answers.yaml"),
                template!("agent/conversation.yaml" as "conversation.yaml"),
            ]),
        }
        files
    }

    fn python_files(self) -> Vec<TemplateFile> {
        let mut files = vec![
            template!("python/pyproject.toml" as "pyproject.toml"),
            template!("python/gitignore" as ".gitignore"),
            template!("python/README.md" as "README.md"),
        ];
        files.extend(sources!(self, "python", ["app.py", "test_app.py"]));
        files
    }

    fn javascript_files(self) -> Vec<TemplateFile> {
        let mut files = vec![
            template!("js/package.json" as "package.json"),
            template!("js/gitignore" as ".gitignore"),
            template!("js/README.md" as "README.md"),
        ];
        files.extend(sources!(self, "js", ["index.js", "index.test.js"]));
        files
    }

    fn typescript_files(self) -> Vec<TemplateFile> {
        let mut files = vec![
            template!("ts/package.json" as "package.json"),
            template!("ts/tsconfig.json" as "tsconfig.json"),
            template!("js/gitignore" as ".gitignore"),
            template!("ts/README.md" as "README.md"),
        ];
        files.extend(sources!(self, "ts", ["index.ts", "index.test.ts"]));
        files
    }

    /// Returns true if the project must be built.
    pub fn is_component(self) -> bool {
        match self {
            Self::Agent | Self::Tool | Self::Callback => true,
            Self::Yaml => false,
        }
    }
}

/// The source of the guest SDK of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SdkSource {
    /// A folder on this machine.
    Path(PathBuf),
    /// The SDK that is embedded in this command, for Rust. `hatchery build` passes its path to cargo.
    Embedded,
}

impl SdkSource {
    /// Returns the dependency in the syntax of the language's manifest.
    fn to_dependency(&self, language: Language) -> String {
        match (self, language) {
            (Self::Path(path), Language::Rust) => format!("{{ path = {:?} }}", path.display().to_string()),
            (Self::Path(path), Language::Python) => {
                // The repository has its modules in their own folder.
                let is_repository = path.ends_with("guest-sdk/python");
                if is_repository { path.join("src").display().to_string() } else { path.display().to_string() }
            }
            (Self::Path(path), Language::JavaScript | Language::TypeScript) => format!("file:{}", path.display()),
            (Self::Embedded, _) => format!("{:?}", version::OFFERED),
        }
    }
}

/// The name of a project. Valid as the name of a crate, a file, an agent and, with `_` instead of `-`, a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectName(String);

impl std::str::FromStr for ProjectName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some((folder, name)) = name.rsplit_once('/') {
            return Err(format!("a name has no folder; write `{name} --path {folder}`"));
        }
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err("a name must start with a lower-case letter".into());
        }
        if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_')) {
            return Err("a name may contain only lower-case letters, digits, `-` and `_`".into());
        }
        if RESERVED.contains(&name) {
            return Err(format!("`{name}` is a reserved word; choose another name"));
        }
        Ok(Self(name.to_owned()))
    }
}

/// Rust keywords, and names with a meaning for agents.
const RESERVED: [&str; 42] = [
    "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "gen", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self",
    "static", "struct", "super", "test", "trait", "true", "type", "unsafe", "use", "user", "where", "while", "tool",
    "agent",
];

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ProjectName {
    /// Returns the name of a function.
    fn to_function(&self) -> String {
        self.0.replace('-', "_")
    }
}

/// Writes the files of a template into a folder, which must be empty or not exist. Returns their paths.
pub fn write(
    kind: TemplateKind,
    language: Language,
    name: &ProjectName,
    sdk: &SdkSource,
    folder: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    if folder.is_file() || folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} already exists; choose another name, or another folder with --path", folder.display());
    }
    let mut paths = Vec::new();
    for (path, text) in kind.files(language) {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        std::fs::write(&path, render(text, name, &sdk.to_dependency(language)))
            .with_context(|| path.display().to_string())?;
        paths.push(path);
    }
    Ok(paths)
}

fn render(text: &str, name: &ProjectName, sdk: &str) -> String {
    text.replace("@NAME@", &name.0).replace("@FUNCTION@", &name.to_function()).replace("@SDK@", sdk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Conversation;

    fn name(name: &str) -> ProjectName {
        name.parse().unwrap()
    }

    #[test]
    fn names_are_valid_for_crates_files_and_agents() {
        for good in ["dice", "my-tool", "a_1"] {
            assert!(good.parse::<ProjectName>().is_ok(), "{good}");
        }
        assert_eq!("Dice".parse::<ProjectName>(), Err("a name must start with a lower-case letter".into()));
        assert_eq!("".parse::<ProjectName>(), Err("a name must start with a lower-case letter".into()));
        assert_eq!("a/b/c".parse::<ProjectName>(), Err("a name has no folder; write `c --path a/b`".into()));
        assert_eq!(
            "a.b".parse::<ProjectName>(),
            Err("a name may contain only lower-case letters, digits, `-` and `_`".into())
        );
        assert_eq!("user".parse::<ProjectName>(), Err("`user` is a reserved word; choose another name".into()));
    }

    #[test]
    fn every_placeholder_is_replaced() {
        for kind in TemplateKind::value_variants() {
            for language in Language::value_variants().iter().copied() {
                for (path, text) in kind.files(language) {
                    let text = render(text, &name("my-thing"), &SdkSource::Embedded.to_dependency(language));
                    for placeholder in ["@NAME@", "@FUNCTION@", "@SDK@"] {
                        assert!(!text.contains(placeholder), "{kind:?} {language:?} {path}: {text}");
                    }
                }
            }
        }
    }

    #[test]
    fn keys_and_data_of_new_projects_are_not_under_version_control() {
        for kind in TemplateKind::value_variants() {
            for language in Language::value_variants().iter().copied() {
                let files = kind.files(language);
                let (_, ignored) = files.iter().find(|(path, _)| *path == ".gitignore").unwrap();
                for line in [".env", ".hatchery/"] {
                    assert!(ignored.lines().any(|ignored| ignored == line), "{kind:?} {language:?}: {ignored}");
                }
            }
        }
    }

    #[test]
    fn a_component_depends_on_the_sdk_by_path_or_on_the_embedded_one() {
        let (_, manifest) = CARGO_MANIFEST;
        let dependency = |sdk: SdkSource, language| sdk.to_dependency(language);
        let path = dependency(SdkSource::Path("../guest-sdk/rust".into()), Language::Rust);
        let by_path = render(manifest, &name("dice"), &path);
        assert!(by_path.contains("hatchery-guest = { path = \"../guest-sdk/rust\" }\n"), "{by_path}");
        assert!(by_path.contains("name = \"dice\"\n"), "{by_path}");
        let embedded = dependency(SdkSource::Embedded, Language::Rust);
        let line = format!("hatchery-guest = \"{}\"\n", version::OFFERED);
        assert!(render(manifest, &name("dice"), &embedded).contains(&line));
        assert_eq!(dependency(SdkSource::Path("/c/python".into()), Language::Python), "/c/python");
        assert_eq!(dependency(SdkSource::Path("../js".into()), Language::JavaScript), "file:../js");
    }

    #[test]
    fn a_folder_with_files_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine"), "x").unwrap();
        let error =
            write(TemplateKind::Yaml, Language::Rust, &name("dice"), &SdkSource::Embedded, folder.path()).unwrap_err();
        assert!(error.to_string().contains("already exists"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_are_written_with_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let files = write(
            TemplateKind::Tool,
            Language::Rust,
            &name("my-tool"),
            &SdkSource::Embedded,
            &folder.path().join("new"),
        )
        .unwrap();
        assert_eq!(files.len(), 3);
        let code = std::fs::read_to_string(folder.path().join("new/src/lib.rs")).unwrap();
        assert!(code.contains("async fn my_tool("), "{code}");
    }

    #[test]
    fn the_conversations_of_agents_are_valid() {
        for kind in [TemplateKind::Yaml, TemplateKind::Agent] {
            for language in Language::value_variants().iter().copied() {
                let folder = tempfile::tempdir().unwrap();
                write(kind, language, &name("dice"), &SdkSource::Embedded, &folder.path().join("dice")).unwrap();
                let file = folder.path().join("dice/conversation.yaml");
                let conversation = Conversation::parse(&std::fs::read_to_string(&file).unwrap(), &file).unwrap();
                assert_eq!(conversation.app, "dice");
            }
        }
    }
}
