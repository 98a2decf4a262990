//! Attacks by components that are slow to compile: the host continues to serve and to revoke grants during their
//! compilation.

use anyhow::{Context, Result};
use hatchery_tests::Stage;
use hatchery_tests::host::{entry, has_app};
use hatchery_tests::paths::component;
use hatchery_tests::stage::with_greeter;
use serde_json::{Value, json};

/// Returns a component with an additional module whose functions are slow to compile.
fn slow_component() -> Result<Vec<u8>> {
    const FUNCTIONS: u32 = 4;
    const LOCALS: u32 = 200;
    const STEPS: u32 = 60_000;
    let mut body = vec![1];
    push_leb128(&mut body, LOCALS);
    body.push(0x7f);
    for step in 0..STEPS {
        // local.get a; local.get b; i32.add; i32.const c; i32.xor; local.tee d; if … end
        body.push(0x20);
        push_leb128(&mut body, step % LOCALS);
        body.push(0x20);
        push_leb128(&mut body, step.wrapping_mul(7) % LOCALS);
        body.extend([0x6a, 0x41]);
        push_leb128(&mut body, step % 63);
        body.extend([0x73, 0x22]);
        push_leb128(&mut body, step.wrapping_mul(13) % LOCALS);
        body.extend([0x04, 0x40, 0x41, 1, 0x21]);
        push_leb128(&mut body, step.wrapping_mul(3) % LOCALS);
        body.push(0x0b);
    }
    body.push(0x0b);
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    push_section(&mut module, 1, &[1, 0x60, 0, 0]);
    push_section(&mut module, 3, &[&[FUNCTIONS as u8][..], &[0; FUNCTIONS as usize]].concat());
    let mut code = vec![FUNCTIONS as u8];
    for _ in 0..FUNCTIONS {
        push_leb128(&mut code, u32::try_from(body.len())?);
        code.extend(&body);
    }
    push_section(&mut module, 10, &code);
    let mut component = component("swap")?;
    push_section(&mut component, 1, &module);
    Ok(component)
}

fn push_section(to: &mut Vec<u8>, id: u8, contents: &[u8]) {
    to.push(id);
    push_leb128(to, u32::try_from(contents.len()).unwrap_or(u32::MAX));
    to.extend(contents);
}

/// Appends an unsigned number in LEB128.
fn push_leb128(to: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        to.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

#[tokio::test]
async fn grants_are_revoked_while_a_slow_component_is_compiled() -> Result<()> {
    let stage = Stage::new("components: {hostile: {grants: {artifacts: write}}}\n").await?;
    let save = async || stage.attack("artifact_flood", json!({ "count": 1, "bytes": 1 })).await;
    assert_eq!(save().await?, json!({ "saved": 1 }));
    stage
        .withstand(async {
            stage.folder.put("slow.wasm", slow_component()?)?;
            // The folder is looked at from top to bottom: the host knows of the slow one when a swap after it has been
            // noticed, or when it is named as one that is being compiled or cannot be.
            stage.folder.put("hatchery.yaml", with_greeter("components: {hostile: {config: {changed: true}}}")?)?;
            stage.host.wait_for_log("hatchery.yaml: applied without a restart").await?;
            let slow = entry(&stage.host.components().await?, "slow.wasm").map(|entry| entry["state"].clone());
            assert_ne!(slow, Some(Value::from("loaded")), "the settings waited until the slow component was compiled");
            let answer = save().await?;
            assert!(answer.to_string().contains("DENIED"), "{answer}");
            Ok(())
        })
        .await
}

#[tokio::test]
async fn a_host_serves_other_components_before_a_slow_one_is_compiled() -> Result<()> {
    let folder = Stage::folder("compile: {time: 1s, max_function_size: 4MiB}\n")?;
    folder.put("slow.wasm", slow_component()?)?;
    let stage = Stage::serve(folder).await?;
    let reason = stage.withstand(stage.host.wait_for_refusal("slow.wasm")).await?;
    assert!(reason.contains("`compile.time`"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn files_that_are_no_components_are_refused_without_side_effects() -> Result<()> {
    let stage = Stage::new("").await?;
    let good = component("swap")?;
    let cut = good.get(..good.len() / 2).context("a half")?.to_vec();
    let mut flipped = good.clone();
    for byte in flipped.iter_mut().skip(1000).step_by(997) {
        *byte ^= 0x55;
    }
    let endless = [good.as_slice(), &[1, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
    for (name, bytes) in
        [("cut.wasm", cut), ("flipped.wasm", flipped), ("endless.wasm", endless), ("empty.wasm", Vec::new())]
    {
        stage.folder.put(name, bytes)?;
        let reason = stage.withstand(stage.host.wait_for_refusal(name)).await?;
        assert!(reason.contains(name.trim_end_matches(".wasm")), "{reason}");
    }
    assert!(!has_app(&stage.host.components().await?, "swap"));
    Ok(())
}
