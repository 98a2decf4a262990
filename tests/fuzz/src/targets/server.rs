//! Bodies of HTTP requests to a server with one agent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hatchery::{AppSource, CatalogReport, ServerConfig};
use hatchery_core::{Agent, Services};
use hatchery_engine::{App, Plugins, Runner};
use hatchery_models::ModelProviders;
use hatchery_server::{AppState, Server};
use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemoryCredentials, MemorySessions};

use super::RUNTIME;

/// Much longer than a response takes.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(start);

struct OneApp(Arc<App>);

impl AppSource for OneApp {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        (name == self.0.name).then(|| self.0.clone())
    }

    fn app_names(&self) -> Vec<String> {
        vec![self.0.name.clone()]
    }

    fn report(&self) -> CatalogReport {
        CatalogReport::default()
    }
}

fn start() -> SocketAddr {
    RUNTIME.block_on(async {
        let services = Services {
            sessions: Arc::new(MemorySessions::new()),
            artifacts: Arc::new(MemoryArtifacts::new()),
            memory: Arc::new(KeywordMemory::new()),
            credentials: Arc::new(MemoryCredentials::default()),
            models: Arc::new(ModelProviders::new()),
        };
        let agent = Agent::new("app", "Runs nothing.", hatchery_core::AgentKind::Sequential);
        let app = Arc::new(App::new("app", agent).expect("an app"));
        let runner = Runner::with_plugins(services, Plugins::default());
        let state = AppState::new(runner, Arc::new(OneApp(app)), ServerConfig::default());
        let server = Server::bind(([127, 0, 0, 1], 0).into(), state).await.expect("a free port");
        let address = server.local_addr().expect("an address");
        tokio::spawn(server.serve(std::future::pending()));
        address
    })
}

/// Sends the body of a request. The first byte of the input selects the route.
pub fn http(bytes: &[u8]) {
    const ROUTES: [&str; 6] = [
        "POST /run",
        "POST /run_sse",
        "POST /apps/app/users/user/sessions",
        "POST /apps/app/users/user/sessions/s",
        "PATCH /apps/app/users/user/sessions/s",
        "POST /apps/app/users/user/sessions/s/artifacts",
    ];
    let (route, body) = bytes.split_first().map_or((0, bytes), |(first, rest)| (usize::from(*first), rest));
    let route = ROUTES.get(route % ROUTES.len()).copied().unwrap_or_default();
    let mut connection = TcpStream::connect(*ADDRESS).expect("the server listens");
    connection.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
    let head = format!(
        "{route} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        *ADDRESS,
        body.len()
    );
    connection.write_all(&[head.as_bytes(), body].concat()).expect("the server reads");
    let mut response = Vec::new();
    connection.read_to_end(&mut response).expect("the server responses");
    let response = String::from_utf8_lossy(&response);
    let status =
        response.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|status| status.parse().ok());
    let status: u16 = status.unwrap_or_else(|| panic!("{route}: no status: {response}"));
    assert!(status < 500, "{route}: {response}");
}
