//! Exposure of a server: the accepted `Host` headers, and the default functions of the developer UI.

use std::path::Path;

use anyhow::bail;
use hatchery::{Config, DevUi};

use super::ServerArgs;
use super::listen::ListenAddress;

/// Returns the accepted `Host` headers. Addresses other than loopback need authentication, or
/// `--allow-unauthenticated`.
pub(super) fn allowed_hosts(
    listen: &ListenAddress,
    args: &ServerArgs,
    config: &Config,
    file: &Path,
) -> anyhow::Result<Vec<String>> {
    let listed = config.server.allowed_hosts.clone();
    if listen.is_local() {
        return Ok(listed);
    }
    if config.server.auth.is_none() && !args.allow_unauthenticated {
        bail!(
            "--host {}: the server has no authentication, so every client that can reach this address could run every agent. \
             Make a key with `openssl rand -hex 32`, put it into the environment variable HATCHERY_KEY, and add to {}:\n\n  \
             server:\n    auth:\n      keys:\n        - {{ name: operator, from: HATCHERY_KEY, role: operate }}\n\nor pass \
             --allow-unauthenticated if something else restricts access",
            args.host,
            file.display()
        );
    }
    // Authenticated clients need no list: a page after DNS rebinding has no credentials for its name.
    Ok(if listed.is_empty() { vec!["*".into()] } else { listed })
}

/// Returns the default functions of the developer UI: all of them if only operators can reach it, on this machine or by
/// authentication.
pub(super) fn default_dev_ui(listen: &ListenAddress, has_auth: bool) -> DevUi {
    if listen.is_local() || has_auth { DevUi::Full } else { DevUi::Read }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hatchery::trust::ConfigSource;

    use super::super::Args;
    use super::super::listen::resolve;
    use super::*;

    #[test]
    fn addresses_other_than_loopback_need_authentication() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: Args,
        }
        let folder = tempfile::tempdir().unwrap();
        let hosts = |host: &str, more: &[&str]| {
            let words = ["serve", folder.path().to_str().unwrap(), "--host", host];
            let args = Command::parse_from(words.iter().chain(more)).args;
            // The file is named, so its host names are trusted.
            let file = Some(folder.path().join("hatchery.yaml")).filter(|file| file.exists());
            let loaded = ConfigSource::new(&args.dir).with_file(file).load().unwrap();
            allowed_hosts(&ListenAddress::Tcp(resolve(host, 80).unwrap()), &args.server, &loaded.config, &loaded.file)
                .map_err(|error| error.to_string())
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(hosts("127.0.0.1", &[]), Ok(none));
        let file = folder.path().join("hatchery.yaml");
        assert_eq!(
            hosts("0.0.0.0", &[]).unwrap_err(),
            format!(
                "--host 0.0.0.0: the server has no authentication, so every client that can reach this address could run \
                 every agent. Make a key with `openssl rand -hex 32`, put it into the environment variable HATCHERY_KEY, and \
                 add to {}:\n\n  server:\n    auth:\n      keys:\n        - {{ name: operator, from: HATCHERY_KEY, role: operate }}\n\n\
                 or pass --allow-unauthenticated if something else restricts access",
                file.display()
            )
        );
        assert_eq!(hosts("0.0.0.0", &["--allow-unauthenticated"]), Ok(vec!["*".into()]));
        std::fs::write(&file, "server:\n  allowed_hosts: [agents.example]\n").unwrap();
        assert!(hosts("0.0.0.0", &[]).is_err(), "a list of names keeps nobody out");
        assert_eq!(hosts("0.0.0.0", &["--allow-unauthenticated"]), Ok(vec!["agents.example".into()]));
        let auth = "server:\n  auth:\n    keys:\n      - { name: operator, from: HATCHERY_KEY, role: operate }\n";
        std::fs::write(&file, auth).unwrap();
        assert_eq!(hosts("0.0.0.0", &[]), Ok(vec!["*".into()]));
        assert_eq!(hosts("127.0.0.1", &[]), Ok(Vec::new()));
        std::fs::write(file, format!("{auth}  allowed_hosts: [agents.example]\n")).unwrap();
        assert_eq!(hosts("0.0.0.0", &[]), Ok(vec!["agents.example".into()]));
    }

    #[test]
    fn the_developer_ui_changes_things_by_default_only_where_strangers_cannot_reach_it() {
        for (address, has_auth, expected) in [
            ("127.0.0.1:0", false, DevUi::Full),
            ("[::1]:0", false, DevUi::Full),
            ("0.0.0.0:0", false, DevUi::Read),
            ("0.0.0.0:0", true, DevUi::Full),
        ] {
            assert_eq!(default_dev_ui(&ListenAddress::Tcp(address.parse().unwrap()), has_auth), expected, "{address}");
        }
        assert_eq!(default_dev_ui(&ListenAddress::Unix("/run/h.sock".into()), false), DevUi::Full);
    }
}
