//! One small example of every kind of item that `polyglot-plain` does not have, by the blocking interfaces and without the SDK.

// Generated code is as it is.
#[allow(missing_docs, clippy::all)]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        inline: "
            package blocking:items;
            world items {
                include hatchery:agent/sync-imports@0.2.0;
                export hatchery:agent/sync-guest-toolsets@0.2.0;
                export hatchery:agent/sync-guest-plugins@0.2.0;
                export hatchery:agent/sync-guest-code-executors@0.2.0;
                export hatchery:agent/sync-guest-summarizers@0.2.0;
                export hatchery:agent/sync-guest-examples@0.2.0;
                export hatchery:agent/sync-guest-models@0.2.0;
            }
        ",
        generate_all,
    });
}

mod items;
mod models;
mod plugins;

use bindings::hatchery::agent::types::{Content, Part, PartData};

struct Blocking;

bindings::export!(Blocking with_types_in bindings);

fn content(role: &str, text: &str) -> Content {
    let part = Part { data: PartData::Text(text.into()), thought: false, thought_signature: None, extra: None };
    Content { role: Some(role.into()), parts: vec![part] }
}

fn text(content: &Content) -> String {
    let text = |part: &Part| if let PartData::Text(text) = &part.data { Some(text.clone()) } else { None };
    content.parts.iter().filter_map(text).collect()
}
