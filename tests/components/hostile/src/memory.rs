//! Attacks on memory: of the component, and of the host on its behalf.

use std::time::Duration;

use futures::future::join_all;
use hatchery_guest::prelude::*;
use wasip2::clocks::monotonic_clock::subscribe_duration;
use wasip2::http::types::{Fields, OutgoingRequest};
use wasip2::random::random::get_random_bytes;

use crate::Amount;

/// Fills the bodies of requests that it never sends, and returns how many bytes the host accepted.
#[tool]
pub async fn bodies(amount: Amount) -> Value {
    let mut taken = 0;
    let mut begun = 0;
    for _ in 0..amount.count {
        let request = OutgoingRequest::new(Fields::new());
        let Ok(body) = request.body() else { break };
        let Ok(stream) = body.write() else { break };
        begun += 1;
        let mut rest = amount.bytes;
        while let Ok(room @ 1..) = stream.check_write() {
            let piece = usize::try_from(room).unwrap_or(usize::MAX).min(rest).min(64 << 10);
            if piece == 0 || stream.write(&vec![b'x'; piece]).is_err() {
                break;
            }
            rest -= piece;
            taken += piece;
        }
        std::mem::forget((stream, body, request));
    }
    json!({ "begun": begun, "taken": taken })
}

/// Fills header fields that it never sends, and returns how many bytes the host accepted.
#[tool]
pub async fn fields(amount: Amount) -> Value {
    let value = vec![b'x'; 4096.min(amount.bytes)];
    let mut taken = 0;
    for _ in 0..amount.count {
        let fields = Fields::new();
        let mut rest = amount.bytes;
        while rest >= value.len() && !value.is_empty() && fields.append("x-hoard", &value).is_ok() {
            rest -= value.len();
            taken += value.len();
        }
        std::mem::forget(fields);
    }
    json!({ "taken": taken })
}

/// Asks for this many random bytes at once.
#[tool]
pub async fn random(amount: Amount) -> usize {
    get_random_bytes(amount.bytes as u64).len()
}

/// Opens handles and never closes them.
#[tool]
pub async fn handles(amount: Amount) -> usize {
    for _ in 0..amount.count {
        std::mem::forget(subscribe_duration(u64::MAX / 2));
    }
    amount.count
}

/// Allocates memory until that fails.
#[tool]
pub async fn grow() {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        // Writing makes it resident.
        taken.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}

/// Allocates this much memory for a second, while other calls do the same.
#[tool]
pub async fn hoard(amount: Amount) -> usize {
    let taken = std::hint::black_box(vec![1_u8; amount.bytes]);
    std::thread::sleep(Duration::from_secs(1));
    taken.len()
}

/// Calls `hoard` this many times at once, and returns the number of successful calls and the errors of the others.
#[tool]
pub async fn own_calls(amount: Amount, cx: ToolContext) -> Value {
    let args = Amount { count: 1, bytes: amount.bytes };
    let calls = (0..amount.count).map(|_| cx.call_tool::<usize>("hoard", &args));
    let results = join_all(calls).await;
    let error = results.iter().find_map(|result| result.as_ref().err()).map(ToString::to_string);
    json!({ "went_well": results.iter().filter(|result| result.is_ok()).count(), "error": error })
}
