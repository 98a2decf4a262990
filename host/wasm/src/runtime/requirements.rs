//! Memory that a component needs before any of its code runs, read from its bytes.

use wasmparser::{Parser, Payload};

/// Default page size, bytes.
const PAGE: u64 = 64 << 10;

/// Returns the sum of the initial sizes of all memories of a component, in bytes. `None` if the bytes cannot be
/// parsed. A module that is instantiated more than once counts once.
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

    fn initial_memory_of(text: &str) -> Option<u64> {
        initial_memory(&wat::parse_str(text).unwrap())
    }

    #[test]
    fn memories_of_all_modules_are_added_up_except_imported_ones() {
        let nested = "(component (core module (memory 2)) (component (core module (memory 3 9))) \
                      (core module (import \"m\" \"m\" (memory 50))))";
        assert_eq!(initial_memory_of(nested), Some(5 * 65536));
        assert_eq!(initial_memory_of("(component)"), Some(0));
        assert_eq!(initial_memory(b"no wasm"), None);
    }
}
