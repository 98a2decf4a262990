//! Writes the Rust examples of `docs/agents.md` into one file: their items, and one `export!` with the lists of all.

#[path = "../../src/blocks.rs"]
mod blocks;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

const GUIDE: &str = "../../../docs/agents.md";
const PRELUDE: &str = "use hatchery_guest::prelude::*;\n";
const EXPORT: &str = "hatchery_guest::export! {";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={GUIDE}");
    println!("cargo::rerun-if-changed=../../src/blocks.rs");
    let guide = fs::read_to_string(GUIDE)?;
    let mut code = PRELUDE.to_owned();
    let mut offered: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for block in blocks::of(&guide).filter(|block| block.info == "rust") {
        let wrong = || {
            format!(
                "{GUIDE}:{}: a component begins with `use` of the prelude and ends with `{EXPORT} … }}`",
                block.line
            )
        };
        let (items, exports) =
            block.text.strip_prefix(PRELUDE).and_then(|text| text.split_once(EXPORT)).ok_or_else(wrong)?;
        code.push_str(items);
        for list in exports.trim_end().strip_suffix('}').ok_or_else(wrong)?.split_terminator(']') {
            if let Some((kind, names)) = list.split_once(": [") {
                offered.entry(kind.trim_matches([',', ' ', '\n'])).or_default().push(names);
            }
        }
    }
    let lists: String = offered.iter().map(|(kind, names)| format!("    {kind}: [{}],\n", names.join(", "))).collect();
    code.push_str(&format!("{EXPORT}\n{lists}}}\n"));
    fs::write(Path::new(&std::env::var("OUT_DIR")?).join("guide.rs"), code)?;
    Ok(())
}
