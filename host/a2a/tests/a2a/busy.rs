//! The maximum of runs.

use futures::future::join_all;
use hatchery_a2a::ServerSettings;
use serde_json::json;

use crate::support::{Options, Server, state};

#[tokio::test]
async fn messages_beyond_the_maximum_of_runs_are_refused_with_a_time_to_try_again() {
    let settings = ServerSettings { max_runs: 2, ..ServerSettings::default() };
    let server = Server::new(Options { settings, ..Options::default() });
    // At once, so that none of them is counted as active when the last one asks.
    let params = || {
        let mut params = server.params(json!([{"text": "wait"}]), json!({}));
        params["configuration"] = json!({"returnImmediately": true});
        params
    };
    let all = join_all((0..3).map(|_| server.post("SendMessage", params()))).await;
    let refused: Vec<_> = all.iter().filter(|response| response.status() != 200).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].status().as_u16(), &refused[0].headers()["retry-after"]), (503, &"1".parse().unwrap()));
    let body: serde_json::Value = serde_json::from_slice(refused[0].body()).unwrap();
    assert_eq!(body["error"]["code"], -32000);
    assert_eq!(body["error"]["message"], "the maximum of 2 runs is active; try again later");
    server.agent.released.add_permits(2);
    server.runner.drain().await;
    assert_eq!(state(&server.send("hello", json!({})).await), "COMPLETED");
}
