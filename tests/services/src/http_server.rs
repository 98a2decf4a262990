//! HTTP servers of tests.

use axum::Router;

/// Serves the routes on a free port of this machine until the test ends. Returns the URL.
///
/// # Panics
/// If no port is free.
pub async fn serve_http(routes: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}
