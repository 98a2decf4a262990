//! The same items in each guest language: the synchronous interfaces of the contract, without the SDK, for toolchains
//! that do not support async functions. See `../rust`, `../python` and `../js`.

// Generated code.
#[allow(missing_docs, clippy::all)]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../../wit",
        inline: "
            package polyglot:plain;
            world plain {
                include hatchery:agent/sync-imports@0.2.1;
                export hatchery:agent/sync-guest-agents@0.2.1;
                export hatchery:agent/sync-guest-tools@0.2.1;
                export hatchery:agent/sync-guest-toolsets@0.2.1;
                export hatchery:agent/sync-guest-callbacks@0.2.1;
                export hatchery:agent/sync-guest-plugins@0.2.1;
                export hatchery:agent/sync-guest-code-executors@0.2.1;
                export hatchery:agent/sync-guest-summarizers@0.2.1;
                export hatchery:agent/sync-guest-examples@0.2.1;
                export hatchery:agent/sync-guest-models@0.2.1;
                export hatchery:agent/sync-guest-live-models@0.2.1;
            }
        ",
        generate_all,
    });
}

mod agents;
mod callbacks;
mod events;
mod items;
mod live;
mod models;
mod plugins;
mod services;
mod tools;
mod web;

use bindings::hatchery::agent::types::{Content, Part, PartData};

struct Plain;

bindings::export!(Plain with_types_in bindings);

fn content(role: &str, text: &str) -> Content {
    Content { role: Some(role.into()), parts: vec![part(text)] }
}

fn parsed(json: &str) -> serde_json::Value {
    serde_json::from_str(json).unwrap_or_default()
}

fn part(text: &str) -> Part {
    Part { data: PartData::Text(text.into()), thought: false, thought_signature: None, extra: None }
}

fn text_of(content: Option<&Content>) -> String {
    let parts = content.into_iter().flat_map(|content| &content.parts);
    parts.filter_map(|part| if let PartData::Text(text) = &part.data { Some(text.as_str()) } else { None }).collect()
}
