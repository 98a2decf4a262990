//! Requirements of paths: the credentials that each route needs. A path that is not listed requires an operator.

use percent_encoding::percent_decode_str;

/// The credentials that a path requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Nothing.
    None,
    /// Valid credentials. The route checks the apps and users that the body names.
    Client,
    /// The permission to use an app.
    App(String),
    /// The permission to use an app for a user.
    User { app: String, user: String },
    /// The permission to use every app: the path does not contain its name.
    EveryApp(&'static str),
    /// The role `operate`.
    Operator,
}

impl Requirement {
    /// Returns the requirement of a path. Segments are separated and decoded as the router does it.
    pub(crate) fn for_path(path: &str) -> Self {
        let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
        match segments.as_slice() {
            ["health" | "ready" | "login" | "logout"] => Self::None,
            ["list-apps" | "run" | "run_sse" | "run-sse" | "run_live" | "ws" | "mcp" | "version" | "openapi.json"] => {
                Self::Client
            }
            ["config", "telemetry"] | ["ws", "schema"] => Self::Client,
            ["apps", app, "users", user, ..] => match (decode(app), decode(user)) {
                (Some(app), Some(user)) => Self::User { app, user },
                _ => Self::Operator,
            },
            ["apps", app, "app-info"] | ["apps", app, "trigger", "pubsub" | "eventarc"] => {
                decode(app).map_or(Self::Operator, Self::App)
            }
            [".well-known", "agent-card.json" | "agent.json"] => Self::EveryApp("the default app"),
            ["a2a", app, ..] => match decode(app) {
                // ADK's clients mean the default app if no app has this name.
                Some(app) if app == "remote" => Self::EveryApp("remote"),
                Some(app) => Self::App(app),
                None => Self::Operator,
            },
            _ => Self::Operator,
        }
    }
}

/// Decodes a segment of a path. `None` if it is not UTF-8, which no route accepts.
fn decode(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_sessions_require_their_app_and_user() {
        let user = |app: &str, user: &str| Requirement::User { app: app.into(), user: user.into() };
        for (path, expected) in [
            ("/apps/dice/users/u/sessions", user("dice", "u")),
            ("/apps/dice/users/u/sessions/s/artifacts/a/b", user("dice", "u")),
            ("/apps/di%63e/users/%75/memory", user("dice", "u")),
            ("/apps/a%2Fb/users/u%zz/sessions", user("a/b", "u%zz")),
            ("/apps/dice/users/%ff/sessions", Requirement::Operator),
        ] {
            assert_eq!(Requirement::for_path(path), expected, "{path}");
        }
    }

    #[test]
    fn everything_else_is_for_operators_unless_it_is_listed() {
        for path in [
            "/",
            "/components",
            "/config",
            "/components/dice/rollback",
            "/dev-ui/",
            "/dev/apps/dice/graph",
            "/dev/apps/dice/builder/save",
            "/components/dice/tools/roll/call",
            "/events",
            "/metrics",
            "/dev/apps/dice/users/u/sessions/s/events/e/graph",
            "/apps/dice/eval_sets",
            "/apps/dice/trigger/kafka",
            "/apps/dice",
            "//apps/dice/users/u/sessions",
            "/apps/../components",
            "/%72un",
            "/run/",
            "/health/x",
            "/unknown",
        ] {
            assert_eq!(Requirement::for_path(path), Requirement::Operator, "{path}");
        }
        assert_eq!(Requirement::for_path("/run"), Requirement::Client);
        assert_eq!(Requirement::for_path("/config/telemetry"), Requirement::Client);
        assert_eq!(Requirement::for_path("/health"), Requirement::None);
        for path in ["/a2a/dice/v1/tasks", "/apps/dice/app-info", "/apps/dice/trigger/pubsub"] {
            assert_eq!(Requirement::for_path(path), Requirement::App("dice".into()), "{path}");
        }
        assert_eq!(Requirement::for_path("/apps/%ff/app-info"), Requirement::Operator);
        for path in ["/a2a/remote/v1/message:send", "/a2a/%72emote/v1/message:send"] {
            assert_eq!(Requirement::for_path(path), Requirement::EveryApp("remote"), "{path}");
        }
    }
}
