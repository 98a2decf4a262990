//! The threads of a process that does not end.

use std::fs;

/// Returns the name of each thread of a process, its state, and what it waits for in the kernel.
pub(crate) fn describe(process: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let thread = |task: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default().trim().to_owned();
        let state = read("status").lines().find_map(|line| line.strip_prefix("State:").map(str::to_owned));
        format!("\n{}:{} {} {}", read("comm"), state.unwrap_or_default(), read("wchan"), read("syscall"))
    };
    tasks.map(thread).collect()
}
