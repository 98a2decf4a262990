//! What a component takes before any of its code runs, read from its bytes.

use wasmparser::{Parser, Payload};

/// Bytes of a page where a memory does not say otherwise.
const PAGE: u64 = 64 << 10;

/// The sum of what all memories of a component begin with, in bytes; `None` when the bytes cannot be read to their end. A module that is
/// instantiated more than once counts once.
pub fn initial_memory(bytes: &[u8]) -> Option<u64> {
    let mut total = 0_u64;
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::MemorySection(section) = payload.ok()? {
            for memory in section {
                let memory = memory.ok()?;
                let page = memory.page_size_log2.map_or(PAGE, |log2| 1 << log2.min(16));
                total = total.saturating_add(memory.initial.saturating_mul(page));
            }
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<u64> {
        initial_memory(&wat::parse_str(text).unwrap())
    }

    #[test]
    fn memories_of_all_modules_are_added_up_and_imported_ones_are_not() {
        let nested = "(component (core module (memory 2)) (component (core module (memory 3 9))) \
                      (core module (import \"m\" \"m\" (memory 50))))";
        assert_eq!(of(nested), Some(5 * 65536));
        assert_eq!(of("(component)"), Some(0));
        assert_eq!(initial_memory(b"no wasm"), None);
    }
}
