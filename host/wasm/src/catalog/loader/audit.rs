//! Lines of the audit log about what is loaded.

/// Notes that other code serves under a component's name.
pub(super) fn swap(component: &str, old: Option<&str>, new: Option<&str>) {
    let detail = match (old, new) {
        (Some(old), Some(new)) => format!("{old} is replaced by {new}"),
        (None, Some(new)) => format!("{new} is loaded"),
        (Some(old), None) => format!("{old} is removed"),
        (None, None) => return,
    };
    tracing::info!(target: "hatchery::audit", component, detail, "swap");
}
