//! The example of a program that embeds a host: a real component, a YAML agent that uses its tool, and a native agent.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use hatchery::{Host, HostBuilder, Storage};

#[allow(dead_code)]
#[path = "../examples/embed_host.rs"]
mod example;

const YAML_AGENT: &str = "name: mathematician\nmodel: scripted:answers.yaml\ninstruction: Find primes.\n\
                          tools: [{ name: dice/check_prime }]\n";

const SCRIPT: &str = "turns:\n  - when: { tool: check_prime }\n    reply: 'Prime: {tool.primes}'\n\
                      \x20 - reply:\n      - call: { name: check_prime, args: { numbers: [4, 7, 9] } }\n";

fn agents() -> tempfile::TempDir {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/wasm32-wasip2/guest");
    let built = std::env::var_os("HATCHERY_COMPONENTS").map_or(built, Into::into).join("dice.wasm");
    assert!(built.is_file(), "{} is missing; build it with `cargo xtask components`", built.display());
    let folder = tempfile::tempdir().unwrap();
    fs::copy(built, folder.path().join("dice.wasm")).unwrap();
    fs::create_dir(folder.path().join("primes")).unwrap();
    fs::write(folder.path().join("primes/root_agent.yaml"), YAML_AGENT).unwrap();
    fs::write(folder.path().join("answers.yaml"), SCRIPT).unwrap();
    folder
}

async fn run_turn(builder: HostBuilder, app: &str, text: &str) -> String {
    let mut out = Vec::new();
    example::run_turn(builder, app, text, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn a_program_runs_agents_of_a_folder_and_its_own() {
    let folder = agents();
    let builder = || Host::builder().folder(folder.path()).storage(Storage::InMemory).code_cache(None);
    let expected = "apps: dice, parrot, primes\n→ check_prime\nmathematician: Prime: [7]\n";
    assert_eq!(run_turn(builder(), "primes", "Which of 4, 7 and 9 are prime?").await, expected);
    assert_eq!(run_turn(builder(), "parrot", "Hello").await, "apps: dice, parrot, primes\nparrot: Hello\n");
}

#[tokio::test]
async fn a_program_needs_no_folder() {
    assert_eq!(run_turn(Host::builder(), "parrot", "Hello").await, "apps: parrot\nparrot: Hello\n");
}
