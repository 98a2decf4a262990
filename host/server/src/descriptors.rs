//! Open files: each connection is one, and so is each database, component and connection to elsewhere.

/// Most descriptors that are kept free of connections, for everything else.
const RESERVED: u64 = 256;

/// Raises this process's limit of open files as far as it may, and returns it. `None` where there is no such limit.
pub(crate) fn raise_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(error) => {
                tracing::debug!(%error, "the limit of open files cannot be raised");
                limit.current
            }
        }
    }
    #[cfg(not(unix))]
    {
        None
    }
}

/// How many of `wanted` connections fit into `files` open files with some to spare; says so when that is fewer.
pub(crate) fn clamp_connections(wanted: usize, files: Option<u64>) -> usize {
    let Some(files) = files else { return wanted };
    let fitting = usize::try_from(files - RESERVED.min(files / 2)).unwrap_or(usize::MAX).max(1);
    if fitting < wanted {
        tracing::warn!(
            files,
            "server.max_connections is {wanted}, but this process may open {files} files only: {fitting} connections are served at \
             one time; raise the limit (`ulimit -Hn`, LimitNOFILE of systemd), or lower server.max_connections"
        );
    }
    wanted.min(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        for (wanted, files, expected) in [
            (4096, Some(1_048_576), 4096),
            (4096, Some(1024), 768),
            (4096, Some(4352), 4096),
            (4096, Some(64), 32),
            (100, Some(1024), 100),
            (4096, Some(1), 1),
            (4096, Some(u64::MAX), 4096),
            (4096, None, 4096),
        ] {
            assert_eq!(clamp_connections(wanted, files), expected, "{files:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_limit_is_raised_to_what_the_process_may_have() {
        let raised = raise_limit().unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(limit.current, Some(raised));
        assert_eq!(raise_limit(), Some(raised));
    }
}
