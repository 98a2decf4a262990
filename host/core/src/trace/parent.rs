//! W3C Trace Context: the span of another service that a run is part of, and the header that names it.

use std::fmt;
use std::str::FromStr;

use crate::id::SessionKey;

/// The value of the header `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not 0.
    pub trace_id: u128,
    /// The span of the sender; not 0.
    pub span_id: u64,
    /// True if the sender records the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// The name of the header.
    pub const HEADER: &'static str = "traceparent";
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.is_sampled))
    }
}

/// A header that is not a valid `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`traceparent` is not VERSION-TRACE-SPAN-FLAGS in lower-case hexadecimal digits")]
pub struct InvalidTraceParent;

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    /// Parses the header. Later versions may append fields.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut fields = text.trim().split('-');
        let mut field = |length: usize| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            fields.next().filter(|field| field.len() == length && field.bytes().all(is_digit)).ok_or(InvalidTraceParent)
        };
        let (version, trace_id, span_id, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let (trace_id, span_id) = (u128::from_str_radix(trace_id, 16), u64::from_str_radix(span_id, 16));
        let (Ok(trace_id @ 1..), Ok(span_id @ 1..)) = (trace_id, span_id) else { return Err(InvalidTraceParent) };
        let flags = u8::from_str_radix(flags, 16).map_err(|_| InvalidTraceParent)?;
        if version == "ff" || (version == "00" && fields.next().is_some()) {
            return Err(InvalidTraceParent);
        }
        Ok(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

/// Returns the id of a run's trace: a hash, so that a run that another host continues has the same.
pub(super) fn trace_id(session: &SessionKey, invocation_id: &str) -> u128 {
    /// Offset and prime of FNV-1a with 128 bits.
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let fields = [&*session.app, &*session.user, &*session.id, invocation_id];
    let bytes = fields.into_iter().flat_map(|field| field.bytes().chain([0]));
    mix(bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))).max(1)
}

/// Spreads the last bytes over all bits of a hash. Samplers compare a part of the bits.
fn mix(hash: u128) -> u128 {
    /// Odd, and the golden ratio in 128 bits.
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (0..2).fold(hash, |hash, _| (hash ^ (hash >> 64)).wrapping_mul(FACTOR))
}

/// Returns a random id.
pub(super) fn new_span_id() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // Each half has bits that are the same in all UUIDs, at different positions.
    (high ^ low.rotate_left(32)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_header_is_read_and_written() {
        let parent: TraceParent = HEADER.parse().unwrap();
        assert_eq!(
            (parent.trace_id, parent.span_id),
            (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7)
        );
        assert!(parent.is_sampled);
        assert_eq!(parent.to_string(), HEADER);
        let unsampled: TraceParent = HEADER.replace("-01", "-00").parse().unwrap();
        assert!(!unsampled.is_sampled);
    }

    #[test]
    fn a_later_version_may_have_more_fields_and_other_flags() {
        let later = HEADER.replacen("00", "cc", 1).replace("-01", "-09") + "-what-the-future-holds";
        assert_eq!(later.parse::<TraceParent>(), HEADER.parse());
    }

    #[test]
    fn what_is_not_a_header_is_refused() {
        let zero_trace = HEADER.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_span = HEADER.replace("00f067aa0ba902b7", &"0".repeat(16));
        let (upper, longer) = (HEADER.to_uppercase(), format!("{HEADER}-00"));
        let (reserved, short) = (HEADER.replacen("00", "ff", 1), &HEADER[..54]);
        for text in
            [&*zero_trace, &zero_span, &upper, &longer, &reserved, short, "", "00-+bf92f3577b34da6a3ce929d0e0e4736-"]
        {
            assert_eq!(text.parse::<TraceParent>(), Err(InvalidTraceParent), "{text}");
        }
    }

    #[test]
    fn similar_runs_have_traces_that_are_spread_evenly() {
        let session = SessionKey::new("app", "ada", "s");
        let ids: Vec<_> = (0..10_000).map(|number| trace_id(&session, &format!("run-{number}"))).collect();
        for (part, shift) in [("low", 0), ("high", 64)] {
            let share = |ratio: f64| {
                let bound = (ratio * 2_f64.powi(63)) as u128;
                ids.iter().filter(|id| ((**id >> shift) & u128::from(u64::MAX)) >> 1 < bound).count()
            };
            let shares = [share(0.1), share(0.5), share(0.9)];
            for (share, expected) in shares.into_iter().zip([1000, 5000, 9000]) {
                assert!(share.abs_diff(expected) < 300, "{part}: {shares:?}");
            }
        }
    }

    #[test]
    fn a_run_has_the_same_trace_on_every_host_and_another_one_has_another() {
        let session = SessionKey::new("app", "ada", "s");
        let id = trace_id(&session, "e-1");
        assert_eq!(id, trace_id(&session, "e-1"));
        assert_ne!(id, trace_id(&session, "e-2"));
        assert_ne!(id, trace_id(&SessionKey::new("app", "ad", "as"), "e-1"));
    }
}
