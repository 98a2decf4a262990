//! Audit log entries about loaded components.

/// Records that the code of a component was loaded, replaced or removed. The level keeps it out of the default log,
/// which has its own line for each of them.
pub(super) fn log_swap(component: &str, old: Option<&str>, new: Option<&str>) {
    let detail = match (old, new) {
        (Some(old), Some(new)) => format!("{old} is replaced by {new}"),
        (None, Some(new)) => format!("{new} is loaded"),
        (Some(old), None) => format!("{old} is removed"),
        (None, None) => return,
    };
    tracing::debug!(target: "hatchery::audit", component, detail, "swap");
}
