//! Files that are rejected before they are compiled, each with its own message.

use hatchery_wasm::version::OFFERED;

use crate::support::{TestCatalog, component};

async fn reason(name: &str, bytes: &[u8]) -> String {
    let test_catalog = TestCatalog::new();
    let file = format!("{name}.wasm");
    test_catalog.write(&file, bytes);
    test_catalog.reason(&test_catalog.open().await.current(), &file)
}

fn text(component: &str) -> Vec<u8> {
    wat::parse_str(component).unwrap()
}

#[tokio::test]
async fn another_version_of_the_contract_names_both_and_the_command_that_helps() {
    let requirement = r#"(component (import "hatchery:agent/session@0.3.1" (instance)))"#;
    assert_eq!(
        reason("weather", &text(requirement)).await,
        "component `weather` needs `hatchery:agent@0.3`, but this host offers 0.2; rebuild it with `hatchery build`"
    );
    let offers = r#"(component (instance $i) (export "hatchery:agent/guest-tools@1.2.0" (instance $i)))"#;
    assert_eq!(
        reason("weather", &text(offers)).await,
        "component `weather` needs `hatchery:agent@1`, but this host offers 0.2; rebuild it with `hatchery build`"
    );
}

#[tokio::test]
async fn a_function_of_a_later_version_of_the_contract_names_both_versions() {
    let (line, _) = OFFERED.rsplit_once('.').unwrap();
    let requirement = format!(
        r#"(component
            (import "hatchery:agent/session@{line}.999" (instance (export "foresee" (func))))
            (core module $m (func (export "f")))
            (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f")))
            (export "f" (func $f)))"#
    );
    let reason = reason("seer", &text(&requirement)).await;
    let expected = format!(
        "component `seer` cannot be loaded: it needs `hatchery:agent@{line}.999`, but this host offers {OFFERED}; update the \
         host, or rebuild it with an earlier SDK: "
    );
    assert!(reason.starts_with(&expected) && reason.contains("foresee"), "{reason}");
}

#[tokio::test]
async fn files_that_are_not_components_have_distinct_messages() {
    assert_eq!(
        reason("notes", b"these are notes").await,
        "component `notes` is not a WebAssembly file; it must be a component made by `hatchery build`"
    );
    assert_eq!(
        reason("core", &text("(module)")).await,
        "component `core` is a core module, not a component; build it with `hatchery build` (target wasm32-wasip2)"
    );
    let whole = std::fs::read(component("dice")).unwrap();
    assert_eq!(
        reason("half", &whole[..whole.len() / 2]).await,
        "component `half` ends in the middle: the file is truncated or still being written; copy it again"
    );
}

#[tokio::test]
async fn an_unknown_import_is_refused_by_name() {
    for import in ["wasi:keyvalue/store@0.2.0", "wasi:io/poll@0.3.0", "acme:secrets/vault"] {
        let requirement = format!(r#"(component (import "{import}" (instance)))"#);
        assert_eq!(
            reason("nosy", &text(&requirement)).await,
            format!(
                "component `nosy` imports `{import}`, which this host does not offer; components can use WASI 0.2 and \
                 `hatchery:agent`"
            )
        );
    }
}

#[tokio::test]
async fn a_file_that_is_larger_than_any_component_is_not_read() {
    let test_catalog = TestCatalog::new();
    let path = test_catalog.write("film.wasm", "");
    let size = (256 << 20) + 1;
    std::fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    assert_eq!(
        test_catalog.reason(&test_catalog.open().await.current(), "film.wasm"),
        format!(
            "{}: has {size} bytes, and a component may have 268435456; build it with `hatchery build`, which strips it, or raise \
             `compile.max_file_size` in hatchery.yaml",
            path.display()
        )
    );
}

#[tokio::test]
async fn a_component_without_exports_is_refused() {
    assert_eq!(
        reason("empty", &text("(component)")).await,
        "component `empty` exports nothing that this host knows, such as agents or tools; export them with \
         `hatchery_guest::export!` and rebuild it"
    );
}

#[tokio::test]
async fn an_export_that_lacks_a_function_is_refused() {
    let lacking = r#"(component (instance $i) (export "hatchery:agent/guest-tools@0.2.0" (instance $i)))"#;
    let reason = reason("hollow", &text(lacking)).await;
    assert!(reason.starts_with("component `hollow` cannot be loaded: "), "{reason}");
    assert!(reason.contains("does not have export `describe`"), "{reason}");
}

#[tokio::test]
async fn a_component_that_exports_tools_in_two_interfaces_is_refused() {
    let twice = r#"(component
        (instance $i)
        (export "hatchery:agent/guest-tools@0.2.0" (instance $i))
        (export "hatchery:agent/sync-guest-tools@0.2.0" (instance $i))
    )"#;
    assert_eq!(
        reason("double", &text(twice)).await,
        "component `double` exports both `guest-tools` and `sync-guest-tools`; keep one of them, and move the items of the other \
         into a separate component"
    );
}

#[tokio::test]
async fn an_invalid_file_name_is_refused() {
    let test_catalog = TestCatalog::new();
    let path = test_catalog.write("my agent.wasm", text("(component)"));
    assert_eq!(
        test_catalog.reason(&test_catalog.open().await.current(), "my agent.wasm"),
        format!(
            "{}: a component's name may hold only letters, digits, `_`, `-` and `.`; rename the file",
            path.display()
        )
    );
}
