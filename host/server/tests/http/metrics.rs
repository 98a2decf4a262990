//! Metrics of runs.

use crate::support::{Host, run_body};

#[tokio::test]
async fn prometheus_reads_what_the_host_has_now() {
    let host = Host::start().await;
    host.session("says").await;
    host.post("/run", &run_body("says", "Hi")).await;
    let response = host.get("/metrics").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = response.text().await.unwrap();
    for line in ["# TYPE hatchery_apps gauge", "hatchery_apps 5", "hatchery_components 1", "hatchery_active_runs 0"] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
    assert!(text.contains("hatchery_runs_total{app=\"says\",error=\"\"} 1\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}
