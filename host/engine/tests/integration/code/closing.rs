//! The end of code executors.

use hatchery_core::ItemResolver;
use hatchery_engine::{AgentTool, App, StaticCatalog};

use super::*;

/// Counts how often it is closed.
#[derive(Default)]
struct ClosingExecutor(Mutex<u32>);

impl ClosingExecutor {
    fn count(&self) -> u32 {
        *self.0.lock().unwrap()
    }
}

#[async_trait]
impl CodeExecutor for ClosingExecutor {
    fn name(&self) -> &str {
        "closing"
    }

    async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
        Ok(CodeOutput::default())
    }

    async fn close(&self) {
        *self.0.lock().unwrap() += 1;
    }
}

fn runs_code(name: &str, executor: Arc<dyn CodeExecutor>) -> Agent {
    let execution = CodeExecution::Host(Box::new(CodeRunner::new(executor)));
    llm_with(name, Scripted::new(), |llm| llm.code_execution = Some(execution))
}

#[tokio::test]
async fn closing_an_app_closes_each_code_executor_of_its_agents_once() {
    let (shared, of_tool) = (Arc::new(ClosingExecutor::default()), Arc::new(ClosingExecutor::default()));
    let helper = AgentTool::new(runs_code("helper", of_tool.clone())).unwrap();
    let child = llm_with("child", Scripted::new(), |llm| llm.tools = vec![Arc::new(helper)]);
    let root = runs_code("root", shared.clone()).with_sub_agents(vec![child, runs_code("peer", shared.clone())]);
    App::new("app", root).unwrap().close().await;
    assert_eq!((shared.count(), of_tool.count()), (1, 1));
}

#[tokio::test]
async fn closing_an_app_does_not_close_an_executor_of_the_program() {
    let executor = Arc::new(ClosingExecutor::default());
    let catalog = StaticCatalog::default().with_code_executor(executor.clone());
    let root = runs_code("root", catalog.code_executor("closing").unwrap());
    App::new("app", root).unwrap().close().await;
    assert_eq!(executor.count(), 0);
}
