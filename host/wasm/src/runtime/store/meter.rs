//! Resource limiter of a Wasmtime store, and the sizes of resources that the host holds for a guest.

use std::any::Any;
use std::sync::Arc;

use http::HeaderMap;
use wasmtime::ResourceLimiter;
use wasmtime_wasi::p2::DynInputStream;
use wasmtime_wasi_http::FieldMap;
use wasmtime_wasi_http::p2::types::{HostIncomingResponse, HostOutgoingRequest, HostOutgoingResponse};

use super::memory::InstanceMemory;
use crate::runtime::limits::{Limit, Limits};

/// Bytes of a host resource in addition to its contents.
const RESOURCE: u64 = 256;

/// Bytes that an input stream may have buffered.
const READ_BUFFER: u64 = 64 << 10;

/// Bytes of a header in addition to its name and value.
const HEADER: u64 = 64;

/// Bytes of a parsed JSON value in addition to its text and its contents.
pub(crate) const JSON_NODE: u64 = size_of::<serde_json::Value>() as u64;

/// Values for which a list or an object has room once it has one.
const FIRST_NODES: u64 = 4;

/// Values for which a list or an object has room per further value: it doubles its room when it is full.
const NEXT_NODES: u64 = 2;

/// Charges the memories and tables of a store, and refuses growth beyond the limits.
pub(crate) struct Meter {
    limits: Limits,
    memory: Arc<InstanceMemory>,
    /// Bytes of the last growth, to be released if it fails.
    last_growth: u64,
    table_elements: u64,
    /// Elements of the last growth, to be released if it fails.
    last_elements: u64,
}

impl Meter {
    pub(crate) fn new(limits: Limits, memory: Arc<InstanceMemory>) -> Self {
        Self { limits, memory, last_growth: 0, table_elements: 0, last_elements: 0 }
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current) as u64;
        self.memory.charge(growth)?;
        self.last_growth = growth;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        tracing::debug!("a component's memory cannot grow: {error:#}");
        self.memory.release(std::mem::take(&mut self.last_growth));
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current) as u64;
        let total = self.table_elements.saturating_add(growth);
        if total > self.limits.tables {
            return Err(self.limits.exceeded(Limit::Tables).into());
        }
        self.table_elements = total;
        self.last_elements = growth;
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        tracing::debug!("a component's table cannot grow: {error:#}");
        self.table_elements -= std::mem::take(&mut self.last_elements);
        Ok(())
    }

    fn instances(&self) -> usize {
        usize::try_from(self.limits.instances).unwrap_or(usize::MAX)
    }
}

/// Returns the bytes of a resource that hold data from or for the guest. Output streams charge their buffers
/// themselves.
pub(super) fn resource_size(resource: &(dyn Any + Send)) -> u64 {
    let text = |text: &Option<String>| text.as_ref().map_or(0, |text| text.len() as u64);
    let contents = if let Some(fields) = resource.downcast_ref::<FieldMap>() {
        headers_size(fields)
    } else if let Some(request) = resource.downcast_ref::<HostOutgoingRequest>() {
        headers_size(&request.headers) + text(&request.authority) + text(&request.path_with_query)
    } else if let Some(response) = resource.downcast_ref::<HostIncomingResponse>() {
        headers_size(&response.headers)
    } else if let Some(response) = resource.downcast_ref::<HostOutgoingResponse>() {
        headers_size(&response.headers)
    } else if resource.is::<DynInputStream>() {
        READ_BUFFER
    } else {
        0
    };
    RESOURCE + contents
}

fn headers_size(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| header_size(name.as_str(), value.as_bytes())).sum()
}

/// Returns the bytes that a header takes.
pub(crate) fn header_size(name: &str, value: &[u8]) -> u64 {
    HEADER + name.len() as u64 + value.len() as u64
}

/// Returns the maximum capacity in bytes of a list that was filled item by item. The contents of the items are not
/// included.
pub(crate) fn list_size(items: usize) -> u64 {
    (FIRST_NODES + NEXT_NODES * items.saturating_sub(1) as u64) * JSON_NODE
}

/// Returns the maximum capacity in bytes of an object. The contents of the keys and values are not included.
pub(crate) fn object_size(entries: usize) -> u64 {
    // An entry has a key in addition to its value, and counts twice.
    list_size(2 * entries)
}

/// Returns the maximum number of bytes that JSON takes after parsing, which can be a hundred times its text. Counts
/// lists as [`list_size`] and objects as [`object_size`].
pub(crate) fn parsed_size(json: &str) -> u64 {
    let (mut nodes, mut is_text, mut is_escaped) = (1_u64, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => nodes += FIRST_NODES,
            // An entry of an object has one of each.
            b',' | b':' if !is_text => nodes += NEXT_NODES,
            _ => {}
        }
    }
    json.len() as u64 + nodes * JSON_NODE
}

/// Returns the bytes that a value takes outside of itself.
#[cfg(test)]
pub(crate) fn heap_size(value: &serde_json::Value) -> u64 {
    /// Bytes of an entry of an object: hash, key and value.
    const ENTRY: u64 = size_of::<(u64, String, serde_json::Value)>() as u64;

    match value {
        serde_json::Value::Array(items) => {
            items.capacity() as u64 * JSON_NODE + items.iter().map(heap_size).sum::<u64>()
        }
        serde_json::Value::Object(map) => {
            let entries = match map.len() as u64 {
                0 => 0,
                // A small object has room for three entries, a larger one for up to twice as many as it has.
                count => (2 * count).max(3) * ENTRY,
            };
            entries + map.iter().map(|(key, value)| key.len() as u64 + heap_size(value)).sum::<u64>()
        }
        serde_json::Value::String(text) => text.capacity() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::store::memory::EngineMemory;

    fn instance(limit: u64, engine: &Arc<EngineMemory>) -> Arc<InstanceMemory> {
        InstanceMemory::new(Limits { memory: limit, ..Limits::default() }, engine.clone(), None)
    }

    #[test]
    fn linear_memories_and_reservations_are_added_up_and_the_error_names_value_and_key() {
        let engine = EngineMemory::new(1 << 30, 1 << 30);
        let memory = instance(3 << 16, &engine);
        let mut meter = Meter::new(Limits::default(), memory.clone());
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
        let held = memory.reserve(1 << 16).unwrap();
        let error = meter.memory_growing(1 << 16, 2 << 16, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it exceeded its limit of 192 KiB of memory; raise `limits.memory` in hatchery.yaml to allow more"
        );
        drop(held);
        assert!(meter.memory_growing(1 << 16, 2 << 16, None).unwrap());
        assert_eq!(engine.used_bytes(), 3 << 16);
        meter.memory_grow_failed(wasmtime::format_err!("no room")).unwrap();
        assert_eq!(engine.used_bytes(), 2 << 16);
        drop((meter, memory));
        assert_eq!(engine.used_bytes(), 0);
    }

    #[test]
    fn a_table_growth_that_fails_is_not_counted() {
        let limits = Limits { tables: 10, ..Limits::default() };
        let mut meter = Meter::new(limits, instance(0, &EngineMemory::new(0, 0)));
        assert!(meter.table_growing(0, 8, None).unwrap());
        meter.table_grow_failed(wasmtime::format_err!("no room")).unwrap();
        assert!(meter.table_growing(0, 10, None).unwrap());
        let error = meter.table_growing(10, 11, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it exceeded its limit of 10 table elements; raise `limits.tables` in hatchery.yaml to allow more"
        );
    }

    #[test]
    fn parsed_json_is_never_larger_than_was_charged() {
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        let pairs: Vec<_> = (0..1000).map(|key| format!("\"{key}\":0")).collect();
        for text in [
            "1",
            "[0,0,0,0]",
            r#"{"a":{"b":[[],[{}],"x,y"]},"c":null}"#,
            "[[[[[[]]]]]]",
            &list("0", 5),
            &list("0", 1025),
            &list("[0]", 1025),
            &list(r#"{"a":0}"#, 1025),
            &format!("{{{}}}", pairs.join(",")),
        ] {
            assert!(parsed_size(text) >= JSON_NODE + heap_size(&serde_json::from_str(text).unwrap()), "{text}");
        }
        assert_eq!(parsed_size(r#""a,b\",[{:\\""#), 13 + JSON_NODE, "brackets inside a string are not nodes");
    }
}
