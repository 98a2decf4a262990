//! The default code executor: the component `sandbox.wasm`, which is installed with the host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, DEFAULT_CODE_EXECUTOR, ItemKind, ToolError};
use hatchery_engine::Extensions;
use hatchery_wasm::{CompileLimits, LoadOptions, Settings, load_component};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

/// The file, below the folders of an installation.
const COMPONENT: &str = "components/sandbox.wasm";

/// The default executor. Clones share the component.
#[derive(Clone)]
pub(crate) struct CodeSandbox(Arc<Sandbox>);

impl CodeSandbox {
    /// `file` replaces the search path. With `preload` the component is compiled when an agent refers to it, otherwise
    /// when code runs first.
    pub(crate) fn new(file: Option<PathBuf>, options: &LoadOptions, preload: bool) -> Self {
        let files = match file {
            Some(file) => vec![file],
            None => installed_files(std::env::current_exe().ok().as_deref(), |name| std::env::var_os(name)),
        };
        Self(Arc::new(Sandbox { files, options: options.clone(), preload, executor: OnceCell::new() }))
    }

    /// Returns the executor with changed settings; the same one if none of its settings changed.
    pub(crate) fn with_settings(&self, settings: &Settings, compile: &CompileLimits) -> Self {
        let Sandbox { files, options, preload, .. } = &*self.0;
        let is_same =
            options.settings.for_component(DEFAULT_CODE_EXECUTOR) == settings.for_component(DEFAULT_CODE_EXECUTOR);
        if is_same && options.compiler.limits() == compile {
            return self.clone();
        }
        let compiler = options.compiler.with_limits(compile.clone());
        let options = LoadOptions { settings: settings.clone(), compiler, ..options.clone() };
        Self(Arc::new(Sandbox { files: files.clone(), options, preload: *preload, executor: OnceCell::new() }))
    }

    /// Returns true if both are the same executor.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Registers the executor, unless there is one of its name.
    pub(crate) fn register(&self, extensions: &mut Extensions) {
        if extensions.code_executors.contains(DEFAULT_CODE_EXECUTOR) {
            return;
        }
        let sandbox = self.0.clone();
        extensions.code_executors.register(DEFAULT_CODE_EXECUTOR, move |_| {
            sandbox.file()?;
            if let (true, Ok(runtime)) = (sandbox.preload, Handle::try_current()) {
                let sandbox = sandbox.clone();
                // Its failure is reported when code is to run.
                runtime.spawn(async move { drop(sandbox.executor().await) });
            }
            Ok(sandbox.clone() as Arc<dyn CodeExecutor>)
        });
    }
}

/// Returns the search path of the component, in order of precedence: the user's data folder, the folder of the program,
/// and the installation that the program is in.
fn installed_files(program: Option<&Path>, environment: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let folder = program.and_then(Path::parent);
    let installation = folder.and_then(Path::parent);
    let folders = [
        data.map(|data| data.join("hatchery")),
        folder.map(Path::to_path_buf),
        installation.map(|installation| installation.join("share/hatchery")),
    ];
    folders.into_iter().flatten().map(|folder| folder.join(COMPONENT)).collect()
}

/// Returns why there is no component. Clients and `hatchery run` see only the names of the files, so the text says where
/// they are.
fn explain_missing(files: &[PathBuf]) -> String {
    let files: Vec<_> = files.iter().map(|file| format!("`{}`", file.display())).collect();
    format!(
        "its component is not installed; build it by `cargo xtask components` in a checkout of Hatchery, put \
         `{COMPONENT}` of a release into the user's data folder or beside the command ({}), or configure \
         `code_executors.{DEFAULT_CODE_EXECUTOR}` in hatchery.yaml",
        files.join(" or ")
    )
}

/// The executor of a component that is loaded on first use.
struct Sandbox {
    /// The search path of the component. The first file that exists is used.
    files: Vec<PathBuf>,
    options: LoadOptions,
    preload: bool,
    executor: OnceCell<Arc<dyn CodeExecutor>>,
}

impl Sandbox {
    /// Returns the component. The error has a remedy.
    fn file(&self) -> Result<&Path, String> {
        let installed = self.files.iter().find(|file| file.is_file());
        installed.map(PathBuf::as_path).ok_or_else(|| explain_missing(&self.files))
    }

    async fn executor(&self) -> Result<&Arc<dyn CodeExecutor>, String> {
        let load = async || {
            let file = self.file()?;
            let component = load_component(&self.options, file).await.map_err(|error| error.to_string())?;
            let name = component.names(ItemKind::CodeExecutor).next().map(str::to_owned);
            let executor = name.and_then(|name| component.code_executor(&name));
            executor.ok_or_else(|| format!("{}: it exports no code executor", file.display()))
        };
        self.executor.get_or_try_init(load).await
    }
}

#[async_trait]
impl CodeExecutor for Sandbox {
    fn name(&self) -> &str {
        DEFAULT_CODE_EXECUTOR
    }

    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError> {
        let executor = self.executor().await.map_err(|reason| {
            tracing::error!("the code executor `{DEFAULT_CODE_EXECUTOR}` cannot be loaded: {reason}");
            ToolError::Recoverable("code cannot be run; the log of the host has the reason".into())
        })?;
        executor.execute(input, cx).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_is_in_the_data_folder_beside_the_program_or_in_its_installation() {
        let program = Path::new("/opt/hatchery/bin/hatchery");
        let files = |variables: &'static [(&str, &str)]| {
            installed_files(Some(program), move |name| {
                variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
            })
        };
        let installed =
            ["/opt/hatchery/bin/components/sandbox.wasm", "/opt/hatchery/share/hatchery/components/sandbox.wasm"]
                .map(PathBuf::from);
        assert_eq!(files(&[]), installed);
        let home = files(&[("HOME", "/home/ada"), ("XDG_DATA_HOME", "relative")]);
        assert_eq!(home[0], Path::new("/home/ada/.local/share/hatchery/components/sandbox.wasm"));
        assert_eq!(home[1..], installed);
        let data = files(&[("HOME", "/home/ada"), ("XDG_DATA_HOME", "/data")]);
        assert_eq!(data[0], Path::new("/data/hatchery/components/sandbox.wasm"));
    }

    #[test]
    fn a_missing_component_is_explained_with_the_ways_to_install_it() {
        assert_eq!(
            explain_missing(&["/opt/a.wasm".into(), "/opt/b.wasm".into()]),
            "its component is not installed; build it by `cargo xtask components` in a checkout of Hatchery, put \
             `components/sandbox.wasm` of a release into the user's data folder or beside the command (`/opt/a.wasm` or \
             `/opt/b.wasm`), or configure `code_executors.sandbox` in hatchery.yaml"
        );
    }
}
