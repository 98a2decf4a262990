//! A local server that takes the place of another service.

use anyhow::Result;
use axum::Router;

/// Serves the routes on a free port of this machine until the test ends. Returns the URL.
pub async fn serve_http(routes: Router) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(url)
}
