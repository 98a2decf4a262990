//! `OTEL_TRACES_SAMPLER`: the runs whose spans are exported.

use hatchery_core::TraceParent;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample};

use super::OtlpError;

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Decides at the beginning of a run whether its spans are exported.
pub(super) struct Sampling(Sampler);

impl Sampling {
    /// Returns the sampler of the environment; all runs by default, unless their caller does not sample them.
    pub(super) fn from_environment(set: &impl Fn(&str) -> Option<String>) -> Result<Self, OtlpError> {
        let ratio = || match set(ARGUMENT) {
            None => Ok(Sampler::TraceIdRatioBased(1.0)),
            Some(value) => match value.trim().parse::<f64>() {
                Ok(ratio @ 0.0..=1.0) => Ok(Sampler::TraceIdRatioBased(ratio)),
                _ => {
                    let next_step = "set it to the share of the runs to export, from 0.0 to 1.0";
                    Err(OtlpError::Unsupported { variable: ARGUMENT, value, next_step })
                }
            },
        };
        let sampler = set(SAMPLER);
        Ok(Self(match sampler.as_deref() {
            Some("always_on") => Sampler::AlwaysOn,
            Some("always_off") => Sampler::AlwaysOff,
            Some("traceidratio") => ratio()?,
            None | Some("parentbased_always_on") => Sampler::ParentBased(Box::new(Sampler::AlwaysOn)),
            Some("parentbased_always_off") => Sampler::ParentBased(Box::new(Sampler::AlwaysOff)),
            Some("parentbased_traceidratio") => Sampler::ParentBased(Box::new(ratio()?)),
            Some(other) => {
                let next_step =
                    "set it to always_on, always_off, traceidratio, or one of these with parentbased_ before it";
                return Err(OtlpError::Unsupported { variable: SAMPLER, value: other.into(), next_step });
            }
        }))
    }

    pub(super) fn is_sampled(&self, trace_id: u128, parent: Option<&TraceParent>) -> bool {
        let trace_id = TraceId::from(trace_id);
        let parent = parent.map(|parent| {
            let flags = TraceFlags::default().with_sampled(parent.is_sampled);
            let span = SpanContext::new(trace_id, SpanId::from(parent.span_id), flags, true, TraceState::default());
            Context::new().with_remote_span_context(span)
        });
        let result = self.0.should_sample(parent.as_ref(), trace_id, "invocation", &SpanKind::Server, &[], &[]);
        matches!(result.decision, SamplingDecision::RecordAndSample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sampler of a value and its argument.
    fn parse_sampling(sampler: Option<&str>, argument: Option<&str>) -> Result<Sampling, OtlpError> {
        Sampling::from_environment(&|name: &str| {
            let value = if name == SAMPLER { sampler } else { argument };
            value.map(str::to_owned)
        })
    }

    fn parent(is_sampled: bool) -> TraceParent {
        TraceParent { trace_id: 7, span_id: 9, is_sampled }
    }

    #[test]
    fn each_sampler_decides_as_the_specification_says() {
        // Without a parent, of an unsampled parent, of a sampled parent.
        for (sampler, expected) in [
            (None, [true, false, true]),
            (Some("always_on"), [true, true, true]),
            (Some("always_off"), [false, false, false]),
            (Some("parentbased_always_on"), [true, false, true]),
            (Some("parentbased_always_off"), [false, false, true]),
            (Some("traceidratio"), [true, true, true]),
            (Some("parentbased_traceidratio"), [true, false, true]),
        ] {
            let sampling = parse_sampling(sampler, None).unwrap();
            let parents = [None, Some(parent(false)), Some(parent(true))];
            assert_eq!(parents.map(|parent| sampling.is_sampled(7, parent.as_ref())), expected, "{sampler:?}");
        }
    }

    #[test]
    fn a_ratio_samples_about_that_share_of_the_traces() {
        let sampling = parse_sampling(Some("traceidratio"), Some("0.25")).unwrap();
        // The ids are hashes: these are spread as evenly.
        let ids = (0..1000_u128).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let sampled = ids.filter(|id| sampling.is_sampled(*id, None)).count();
        assert!((200..300).contains(&sampled), "{sampled}");
    }

    #[test]
    fn a_value_that_is_not_supported_is_refused_with_the_next_step() {
        let error = parse_sampling(Some("jaeger_remote"), None).err().unwrap();
        assert_eq!(
            error.to_string(),
            "OTEL_TRACES_SAMPLER=jaeger_remote is not supported: set it to always_on, always_off, traceidratio, or one of \
             these with parentbased_ before it"
        );
        let error = parse_sampling(Some("traceidratio"), Some("2")).err().unwrap();
        assert_eq!(
            error.to_string(),
            "OTEL_TRACES_SAMPLER_ARG=2 is not supported: set it to the share of the runs to export, from 0.0 to 1.0"
        );
    }
}
