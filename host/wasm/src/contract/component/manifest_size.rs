//! Size limit of a component's manifest.

use std::fmt::{self, Debug, Write};

use super::manifest::RawManifest;

/// Maximum size in bytes of all descriptions, names, instructions and schemas of a component together, in `Debug`
/// form.
const MAX_BYTES: usize = 4 << 20;

/// Fails if the manifest is too large to be stored, displayed and sent to models.
pub(super) fn check(described: &RawManifest) -> Result<(), String> {
    let mut counter = Counter(0);
    let items: [&dyn Debug; 10] = [
        &described.agents,
        &described.tools,
        &described.toolsets,
        &described.callbacks,
        &described.plugins,
        &described.code_executors,
        &described.summarizers,
        &described.examples,
        &described.models,
        &described.live_models,
    ];
    let is_small = items.into_iter().all(|items| write!(counter, "{items:?}").is_ok());
    if is_small {
        return Ok(());
    }
    Err(format!(
        "its descriptions have more than {} MiB; shorten descriptions, instructions and schemas",
        MAX_BYTES >> 20
    ))
}

/// Counts written bytes, and fails once they exceed the limit.
struct Counter(usize);

impl Write for Counter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(text.len());
        if self.0 > MAX_BYTES { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_manifest_is_limited() {
        let named = |bytes: usize| RawManifest { models: vec!["m".repeat(bytes); 2], ..RawManifest::default() };
        check(&named(1 << 20)).unwrap();
        assert_eq!(
            check(&named(2 << 20)).unwrap_err(),
            "its descriptions have more than 4 MiB; shorten descriptions, instructions and schemas"
        );
    }
}
