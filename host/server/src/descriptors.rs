//! The limit of open files (`RLIMIT_NOFILE`). Connections, databases and outbound requests all use descriptors.

/// Maximum number of descriptors that are reserved for other uses than connections.
const RESERVED: u64 = 256;

/// Raises the limit of open files to its maximum and returns it. `None` if there is no limit.
pub(crate) fn raise_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(error) => {
                tracing::debug!(%error, "cannot raise the limit of open files");
                limit.current
            }
        }
    }
    #[cfg(not(unix))]
    {
        None
    }
}

/// Returns the number of connections, at most `wanted`, that fit into `files` descriptors. Logs a warning if not all of
/// them do.
pub(crate) fn clamp_connections(wanted: usize, files: Option<u64>) -> usize {
    let Some(files) = files else { return wanted };
    let fitting = usize::try_from(files - RESERVED.min(files / 2)).unwrap_or(usize::MAX).max(1);
    if fitting < wanted {
        tracing::warn!(
            files,
            "server.max_connections is {wanted}, but this process may open only {files} files, so it serves {fitting} connections \
             at a time; raise the limit (`ulimit -Hn`, LimitNOFILE of systemd), or lower server.max_connections"
        );
    }
    wanted.min(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_other_uses() {
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
    fn the_limit_is_raised_to_its_maximum() {
        let raised = raise_limit().unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(limit.current, Some(raised));
        assert_eq!(raise_limit(), Some(raised));
    }
}
