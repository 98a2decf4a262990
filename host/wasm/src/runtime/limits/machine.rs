//! Detection of the memory that this process may use.

use std::path::Path;

/// Bytes assumed if the memory cannot be detected.
const FALLBACK: u64 = 8 << 30;

/// Returns the bytes of memory of this machine, or of the container (control group) of this process if it has less. 8
/// GiB if neither can be read.
pub(crate) fn memory() -> u64 {
    let machine = read("/proc/meminfo").and_then(|text| total(&text)).unwrap_or(FALLBACK);
    machine.min(container().unwrap_or(u64::MAX))
}

/// Parses `MemTotal` of `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the lowest limit of the control groups of this process.
fn container() -> Option<u64> {
    let groups = read("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(group);
    let of_v2 = own.ancestors().take_while(|group| group.starts_with(root)).map(|group| group.join("memory.max"));
    let of_v1 = root.join("memory/memory.limit_in_bytes");
    of_v2.chain([of_v1]).filter_map(|file| read(file)?.trim().parse().ok()).min()
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_bytes() {
        assert_eq!(total("MemTotal:       16303428 kB\nMemFree: 1 kB\n"), Some(16_303_428 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(memory() > 0);
    }
}
