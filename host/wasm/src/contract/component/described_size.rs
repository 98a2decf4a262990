//! How much a component says of itself.

use std::fmt::{self, Debug, Write};

use super::offer::Described;

/// Most bytes of all descriptions, names, instructions and schemas of a component together, as they are shown for debugging.
const MAX_BYTES: usize = 4 << 20;

/// Refuses descriptions that are too long to be kept, shown and sent to models.
pub(super) fn check(described: &Described) -> Result<(), String> {
    let mut counter = Counter(0);
    let items: [&dyn Debug; 8] = [
        &described.agents,
        &described.tools,
        &described.callbacks,
        &described.plugins,
        &described.code_executors,
        &described.summarizers,
        &described.examples,
        &described.models,
    ];
    let is_small = items.into_iter().all(|items| write!(counter, "{items:?}").is_ok());
    if is_small {
        return Ok(());
    }
    Err(format!("it says more than {} MiB of itself; shorten descriptions, instructions and schemas", MAX_BYTES >> 20))
}

/// Counts what is written, and takes no more once it is too much.
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
    fn what_a_component_says_of_itself_is_bounded() {
        let named = |bytes: usize| Described { models: vec!["m".repeat(bytes); 2], ..Described::default() };
        check(&named(1 << 20)).unwrap();
        assert_eq!(
            check(&named(2 << 20)).unwrap_err(),
            "it says more than 4 MiB of itself; shorten descriptions, instructions and schemas"
        );
    }
}
