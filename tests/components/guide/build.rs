//! Merges the Rust examples of `docs/agents.md` into one file: all their items, and one `export!`.

#[path = "../../src/code_blocks.rs"]
mod code_blocks;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

const GUIDE: &str = "../../../docs/agents.md";
const PRELUDE: &str = "use hatchery_guest::prelude::*;\n";
const EXPORT: &str = "hatchery_guest::export! {";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={GUIDE}");
    println!("cargo::rerun-if-changed=../../src/code_blocks.rs");
    let guide = fs::read_to_string(GUIDE)?;
    let mut code = PRELUDE.to_owned();
    let mut exports_by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for block in code_blocks::parse(&guide).filter(|block| block.info == "rust") {
        let malformed = || {
            format!(
                "{GUIDE}:{}: a component begins with `use` of the prelude and ends with `{EXPORT} … }}`",
                block.line
            )
        };
        let (items, exports) =
            block.text.strip_prefix(PRELUDE).and_then(|text| text.split_once(EXPORT)).ok_or_else(malformed)?;
        code.push_str(items);
        for list in exports.trim_end().strip_suffix('}').ok_or_else(malformed)?.split_terminator(']') {
            if let Some((kind, names)) = list.split_once(": [") {
                exports_by_kind.entry(kind.trim_matches([',', ' ', '\n'])).or_default().push(names);
            }
        }
    }
    let lists: String =
        exports_by_kind.iter().map(|(kind, names)| format!("    {kind}: [{}],\n", names.join(", "))).collect();
    code.push_str(&format!("{EXPORT}\n{lists}}}\n"));
    fs::write(Path::new(&std::env::var("OUT_DIR")?).join("guide.rs"), code)?;
    Ok(())
}
