//! Development components: an interpreter whose file ends with its program.

use hatchery_wasm::{CompileLimits, Compiler, Worker, join_program, precompile};
use serde_json::json;

use crate::support::{TestCatalog, call};

/// An interpreter of programs that are one text: its function `text` returns the program.
const INTERPRETER: &str = r#"
(component
  (import "hatchery:development/program@0.1.0" (instance $program (export "read" (func (result (list u8))))))
  (core module $libc
    (memory (export "memory") 1)
    (global $free (mut i32) (i32.const 1024))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at (global.get $free))
      (global.set $free (i32.add (global.get $free) (local.get 3)))
      (local.get $at)))
  (core instance $libc (instantiate $libc))
  (core func $read
    (canon lower (func $program "read") (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
  (core module $main
    (import "host" "read" (func $read (param i32)))
    (func (export "text") (result i32) (call $read (i32.const 16)) (i32.const 16)))
  (core instance $main (instantiate $main (with "host" (instance (export "read" (func $read))))))
  (func (export "text") (result string)
    (canon lift (core func $main "text") (memory (core memory $libc "memory")))))"#;

/// Returns a compiler that fails.
fn no_compiler() -> Compiler {
    let args = ["-c", "exit 1"].map(Into::into).to_vec();
    Compiler::new(Worker::ChildProcess { program: "/bin/sh".into(), args }, CompileLimits::default())
}

#[tokio::test]
async fn a_changed_program_serves_without_being_compiled() {
    let mut test_catalog = TestCatalog::new();
    let interpreter = wat::parse_str(INTERPRETER).unwrap();
    precompile(&test_catalog.options, &test_catalog.write("teller.wasm", join_program(&interpreter, b"one")))
        .await
        .unwrap();
    test_catalog.options.compiler = no_compiler();
    let handle = test_catalog.open().await;
    let before = handle.current();
    assert_eq!(call(&before, "teller/text", json!({})).await.unwrap(), json!("one"));
    test_catalog.write("teller.wasm", join_program(&interpreter, b"two and more"));
    let after = handle.reload_now().await;
    assert_eq!(call(&after, "teller/text", json!({})).await.unwrap(), json!("two and more"));
    assert_ne!(after.components["teller"].sha256(), before.components["teller"].sha256());
    assert_eq!(call(&before, "teller/text", json!({})).await.unwrap(), json!("one"), "runs in progress keep theirs");
    test_catalog.write("teller.wasm", &interpreter);
    let without = handle.reload_now().await;
    assert_eq!(call(&without, "teller/text", json!({})).await.unwrap(), json!(""));
}
