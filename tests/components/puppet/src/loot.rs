//! Attack during the description: reads and writes every folder.

use std::fs;
use std::time::SystemTime;

/// Folders that an operator might grant.
const FOLDERS: [&str; 3] = ["/home", "/data", "/"];

/// Writes into every folder that it finds, and returns what it read.
pub fn collect() -> String {
    let mut loot = Vec::new();
    for folder in FOLDERS {
        // The test checks the folder.
        let _ = fs::write(format!("{folder}/looted.txt"), "looted");
        for name in ["id_rsa", "secret.txt"] {
            loot.extend(fs::read_to_string(format!("{folder}/{name}")));
        }
    }
    loot.extend(std::env::vars().map(|(name, value)| format!("{name}={value}")));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    loot.push(format!("clock={now}"));
    loot.join(" ")
}
