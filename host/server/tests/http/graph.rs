//! Graphs of apps and events.

use serde_json::json;

use crate::support::{Host, problem, run_body, success};

const SESSION: &str = "/apps/says/users/u/sessions/s";

#[tokio::test]
async fn an_app_has_a_graph_for_clients_of_each_generation() {
    let host = Host::start().await;
    for path in ["/dev/apps/says/build_graph", "/dev/build_graph/says"] {
        let structure = host.get_json(path).await;
        assert_eq!(structure["root_agent"]["name"], "says");
        assert_eq!(structure["root_agent"]["sub_agents"], json!([]));
    }
    for path in ["/dev/apps/says/build_graph_image?dark_mode=false", "/dev/build_graph_image/says"] {
        let images = host.get_json(path).await;
        assert!(images[""]["dotSrc"].as_str().unwrap().starts_with("digraph {"), "{images}");
        assert_eq!(images["dotSrc"], images[""]["dotSrc"]);
    }
    let dark = host.get_json("/dev/apps/says/graph?dark_mode=true").await;
    assert!(dark["dotSrc"].as_str().unwrap().contains("#202124"), "{dark}");
    let unknown = problem(host.get("/dev/apps/says/graph?node=x").await, 400, "BAD_INPUT").await;
    assert_eq!(unknown["detail"], "`node` is `x`, but the app has no agent of that path; leave it out for the root");
    problem(host.get("/dev/apps/nobody/build_graph").await, 404, "APP_NOT_FOUND").await;
}

#[tokio::test]
async fn the_graph_of_an_event_shows_its_agent() {
    let host = Host::start().await;
    host.session("says").await;
    let events = success(host.post("/run", &run_body("says", "Hi")).await).await;
    let id = events[0]["id"].as_str().unwrap();
    for prefix in ["", "/dev"] {
        let graph = host.get_json(&format!("{prefix}{SESSION}/events/{id}/graph")).await;
        assert!(
            graph["dotSrc"]
                .as_str()
                .unwrap()
                .contains("\"says\" [label=\"says\\n(custom)\", shape=ellipse, style=filled")
        );
    }
    assert_eq!(host.get_json(&format!("{SESSION}/events/none/graph")).await, json!({}));
    let stored = host.get_json(SESSION).await;
    let message = stored["events"][0]["id"].as_str().unwrap();
    assert_eq!(host.get_json(&format!("{SESSION}/events/{message}/graph")).await, json!({}));
    problem(host.get("/apps/says/users/u/sessions/x/events/e/graph").await, 404, "SESSION_NOT_FOUND").await;
}
