//! Test calls of single tools.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery::{AppSource, CatalogReport, DevUi, ServerConfig};
use hatchery_core::{
    Agent, CallContext, Callback, FunctionDeclaration, ItemKind, ItemResolver, JsonMap, Part, ResolveError, Services,
    SessionKey, SessionService, StoreError, Tool, ToolError, WrapperSessionService,
};
use hatchery_engine::{App, Runner};
use hatchery_server::{AppState, Server};
use hatchery_stores::MemorySessions;
use hatchery_test_support::{declaration, services};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::support::{post_bytes, wait_for};

/// A tool that saves an artifact, and waits for a permit to leave.
struct HeldTool {
    declaration: Arc<FunctionDeclaration>,
    entered: Semaphore,
    leave: Semaphore,
}

#[async_trait]
impl Tool for HeldTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        cx.save_artifact("a", &Part::text("b")).await.unwrap();
        self.entered.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        Ok(json!("let go"))
    }
}

/// A source without apps, whose component `kitchen` has the tool.
struct Kitchen(Arc<HeldTool>);

impl AppSource for Kitchen {
    fn app(&self, _: &str) -> Option<Arc<App>> {
        None
    }

    fn app_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn report(&self) -> CatalogReport {
        CatalogReport::default()
    }

    fn items(&self) -> Option<Arc<dyn ItemResolver>> {
        Some(Arc::new(Self(self.0.clone())))
    }
}

impl ItemResolver for Kitchen {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        if name == "kitchen/held" { Ok(self.0.clone()) } else { Err(unknown(ItemKind::Tool, name)) }
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
        Err(unknown(ItemKind::Callback, name))
    }

    fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
        Err(unknown(ItemKind::Agent, name))
    }
}

fn unknown(kind: ItemKind, name: &str) -> ResolveError {
    ResolveError::Unknown { kind, name: name.into(), known: Vec::new() }
}

/// Remembers the sessions that are deleted.
struct WatchedSessions {
    inner: MemorySessions,
    deleted: Semaphore,
    keys: Mutex<Vec<SessionKey>>,
}

#[async_trait]
impl WrapperSessionService for WatchedSessions {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.inner.delete(key).await?;
        self.keys.lock().unwrap().push(key.clone());
        self.deleted.add_permits(1);
        Ok(())
    }
}

#[tokio::test]
async fn the_session_of_a_call_is_deleted_if_the_client_goes_away() {
    let (entered, leave) = (Semaphore::new(0), Semaphore::new(0));
    let tool = Arc::new(HeldTool { declaration: declaration("held"), entered, leave });
    let (inner, deleted) = (MemorySessions::new(), Semaphore::new(0));
    let sessions = Arc::new(WatchedSessions { inner, deleted, keys: Mutex::default() });
    let services = Services { sessions: sessions.clone(), ..services() };
    let config = ServerConfig { dev_ui: Some(DevUi::Full), ..ServerConfig::default() };
    let state = AppState::new(Runner::new(services.clone()), Arc::new(Kitchen(tool.clone())), config);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), state).await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&post_bytes("/components/kitchen/tools/held/call", &json!({}))).await.unwrap();
    wait_for(&tool.entered).await;
    drop(client);
    // Lets the server notice that.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    tool.leave.add_permits(1);
    wait_for(&sessions.deleted).await;
    let key = sessions.keys.lock().unwrap().remove(0);
    assert_eq!(&*key.app, "tool_call");
    assert!(services.artifacts.list(&key).await.unwrap().is_empty());
}
