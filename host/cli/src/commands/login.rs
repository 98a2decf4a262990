//! `hatchery login`: authorizes the host at an MCP server by OAuth, in a browser. The tokens are stored in the data
//! folder.

use std::path::PathBuf;

use anyhow::{Context, bail};
use async_trait::async_trait;
use hatchery::{Browser, Host};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::dotenv::DotEnvSource;
use crate::files::require_folder;
use crate::host::{ConfigArgs, StorageArgs, explain_trust};
use crate::interrupts::Interrupts;
use crate::outcome::Outcome;

/// Maximum size of the head of a browser's request.
const MAX_HEAD: usize = 64 << 10;

/// The page that the browser shows after the login.
const PAGE: &str = "You can close this page and return to the terminal.\n";

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery login tickets\n  hatchery login tickets my-agents --port 8976\n\n\
    SERVER is one of `mcp.servers` of hatchery.yaml with `oauth`. The command prints a URL to open in a browser, and waits on \
    127.0.0.1 for the redirect. A running host uses the tokens within 30 seconds.")]
pub struct Args {
    /// The name of the MCP server in hatchery.yaml
    server: String,
    /// The served folder
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Port of the redirect URL, if the authorization server accepts only certain ports; 0 for any free port
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        DotEnvSource::for_served_folder(&self.dir, &self.config)
    }
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    require_folder(&args.dir)?;
    let loaded = args.config.source(&args.dir).load()?;
    if let Some(explanation) = explain_trust(&loaded) {
        bail!("{explanation}");
    }
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await;
    let listener = listener.with_context(|| format!("cannot listen on port {} of 127.0.0.1", args.port))?;
    let browser = LoopbackBrowser { redirect_uri: format!("http://{}/callback", listener.local_addr()?), listener };
    let storage = args.storage.storage(&args.dir);
    let login = Host::login(&loaded.config, &storage, &args.server, &browser);
    let Some(result) = Interrupts::listen()?.race(login).await else { return Ok(Outcome::Interrupted) };
    result.with_context(|| format!("no access to the MCP server `{}`", args.server))?;
    eprintln!("The host has access to the MCP server `{}`.", args.server);
    Ok(Outcome::Success)
}

/// A browser on this machine, whose login ends with a redirect to a port of this process.
struct LoopbackBrowser {
    listener: TcpListener,
    redirect_uri: String,
}

#[async_trait]
impl Browser for LoopbackBrowser {
    fn redirect_uri(&self) -> String {
        self.redirect_uri.clone()
    }

    async fn authorize(&self, url: &str) -> Result<String, String> {
        eprintln!("Open this URL in a browser on this machine:\n\n{url}\n");
        // Browsers open connections that they do not use, and ask for icons.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let (mut connection, _) = accepted.map_err(|error| error.to_string())?;
                    connections.spawn(async move { callback_query(&mut connection).await });
                }
                Some(ended) = connections.join_next() => {
                    if let Ok(Some(query)) = ended {
                        return Ok(format!("{}?{query}", self.redirect_uri));
                    }
                }
            }
        }
    }
}

/// Reads and answers a request. Returns its query if it is the redirect.
async fn callback_query(connection: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = connection.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(buffer.get(..count)?);
        if head.len() > MAX_HEAD {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let query = head.strip_prefix("GET /callback?").and_then(|rest| rest.split_whitespace().next());
    let (status, page) = if query.is_some() { ("200 OK", PAGE) } else { ("404 Not Found", "") };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    // The redirect counts even if the browser is gone.
    let _ = connection.write_all(answer.as_bytes()).await;
    query.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_redirect_is_told_from_other_requests_of_a_browser() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let browser = LoopbackBrowser { redirect_uri: format!("http://{address}/callback"), listener };
        let requests = async {
            drop(TcpStream::connect(address).await.unwrap());
            let mut answers = Vec::new();
            for target in ["/favicon.ico", "/callback?code=c&state=s"] {
                let mut connection = TcpStream::connect(address).await.unwrap();
                connection.write_all(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
                let mut answer = String::new();
                connection.read_to_string(&mut answer).await.unwrap();
                answers.push(answer);
            }
            answers
        };
        let (redirected, answers) = tokio::join!(browser.authorize("https://login.example"), requests);
        assert_eq!(redirected.unwrap(), format!("http://{address}/callback?code=c&state=s"));
        assert!(answers[0].starts_with("HTTP/1.1 404 Not Found"), "{answers:?}");
        assert!(answers[1].ends_with(PAGE), "{answers:?}");
    }

    #[tokio::test]
    async fn a_redirect_arrives_while_the_browser_holds_an_unused_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let browser = LoopbackBrowser { redirect_uri: format!("http://{address}/callback"), listener };
        let unused = TcpStream::connect(address).await.unwrap();
        let redirect = async {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(b"GET /callback?code=1&state=2 HTTP/1.1\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let both = async { tokio::join!(browser.authorize("https://issuer.example"), redirect) };
        let (url, answer) = tokio::time::timeout(Duration::from_secs(20), both).await.expect("no redirect");
        assert_eq!(url.unwrap(), format!("http://{address}/callback?code=1&state=2"));
        assert!(answer.ends_with(PAGE), "{answer}");
        drop(unused);
    }
}
