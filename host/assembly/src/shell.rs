//! Quoting for POSIX shells: command lines that users copy. Names in them come from components and folders and can
//! contain any character.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;

/// Returns a string as one word of a POSIX shell command, quoted if necessary.
pub fn quote(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns a path as one word of a shell command that is never parsed as an option.
pub fn quote_path(path: &Path) -> String {
    let text = path.display().to_string();
    if text.starts_with('-') { quote(&format!("./{text}")) } else { quote(&text) }
}

/// Returns two `curl` commands that create a session of an app at the server `url` and send a message. They read an API
/// key from `KEY` if the server has authentication.
pub fn session_commands(url: &str, app: &str, has_auth: bool) -> String {
    let session = quote(&format!("{url}/apps/{}/users/me/sessions/first", percent_encode(app)));
    let message = json!({
        "appName": app, "userId": "me", "sessionId": "first",
        "newMessage": {"parts": [{"text": "Hello"}]}, "streaming": true,
    });
    let (run, message) = (quote(&format!("{url}/run_sse")), quote(&message.to_string()));
    let key = if has_auth { " -H \"Authorization: Bearer $KEY\"" } else { "" };
    format!("curl -s -X POST {session}{key}\ncurl -N {run}{key} -H 'Content-Type: application/json' -d {message}")
}

/// Percent-encodes a string as a path segment of a URL.
fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        // Writing to a string cannot fail.
        let _ = match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.write_char(char::from(byte)),
            other => write!(encoded, "%{other:02X}"),
        };
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_safe_for_any_app_name() {
        assert_eq!(
            session_commands("http://127.0.0.1:8080", "dice", false),
            "curl -s -X POST http://127.0.0.1:8080/apps/dice/users/me/sessions/first\n\
             curl -N http://127.0.0.1:8080/run_sse -H 'Content-Type: application/json' -d '{\"appName\":\"dice\",\"userId\":\"me\",\
             \"sessionId\":\"first\",\"newMessage\":{\"parts\":[{\"text\":\"Hello\"}]},\"streaming\":true}'"
        );
        let evil = "x'; touch /tmp/owned; '$(id)/?";
        let commands = session_commands("http://h", evil, false);
        assert!(
            commands.contains("/apps/x%27%3B%20touch%20%2Ftmp%2Fowned%3B%20%27%24%28id%29%2F%3F/users"),
            "{commands}"
        );
        // A shell that runs them starts `curl` twice and nothing else.
        let script = format!("curl() {{ printf '%s\\n' \"$*\"; }}\n{commands}");
        let output = std::process::Command::new("/bin/sh").args(["-c", &script]).env("PATH", "").output().unwrap();
        let output_text = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output_text.lines().count(), output.stderr.len()), (2, 0), "{output_text}");
        assert!(output_text.contains(&format!("\"appName\":\"{evil}\"")), "{output_text}");
    }

    #[test]
    fn any_text_is_quoted_as_one_word() {
        for (text, word) in [
            ("dice", "dice"),
            ("./a/b-1.wasm", "./a/b-1.wasm"),
            ("my agents", "'my agents'"),
            ("it's", "'it'\\''s'"),
            ("$(rm -rf ~)", "'$(rm -rf ~)'"),
            ("a;b", "'a;b'"),
            ("", "''"),
        ] {
            assert_eq!(quote(text), word);
        }
        assert_eq!(quote_path(Path::new("-rf")), "./-rf");
    }

    #[cfg(unix)]
    #[test]
    fn a_shell_parses_the_original_text() {
        for text in ["'; touch /tmp/x; '", "`id`", "a\nb", "\\", "\"$HOME\"", "!!"] {
            let script = format!("printf %s {}", quote(text));
            let output = std::process::Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
