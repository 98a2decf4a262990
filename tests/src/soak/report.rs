//! The report of a soak test.

use std::collections::BTreeMap;
use std::fmt;

use super::{Outcome, Sample};

/// Interval between two lines of the table in seconds.
const MINUTE: f64 = 60.0;

/// Returns the index of the sample that the last one is compared with.
pub(super) fn warm_up(samples: &[Sample]) -> usize {
    samples.len() / 3
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed: u64 = self.failed.values().sum();
        let attacks: u64 = self.attacks.values().flat_map(BTreeMap::values).sum();
        let rate = self.requests() as f64 / self.at.max(0.001);
        write!(
            f,
            "{:>6.0} s  {:>8} requests ({rate:>5.0}/s)  {failed:>4} failed  {attacks:>6} attacks  {:>5} swaps  {}",
            self.at,
            self.requests(),
            self.swaps,
            self.usage,
        )
    }
}

/// Formats an outcome as Markdown tables.
pub struct Report<'a>(pub &'a Outcome);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = &self.0.samples;
        writeln!(f, "| time | requests | failed | swaps | memory | handles |\n|---|---|---|---|---|---|")?;
        let mut next = MINUTE;
        for (index, sample) in samples.iter().enumerate() {
            let name = match index {
                0 => "start".to_owned(),
                _ if index + 1 == samples.len() => "end".to_owned(),
                _ if index == warm_up(samples) => format!("{:.0} s, after warm-up", sample.at),
                _ if sample.at >= next => format!("{:.0} s", sample.at),
                _ => continue,
            };
            next = (sample.at / MINUTE).floor() * MINUTE + MINUTE;
            let failed: u64 = sample.failed.values().sum();
            let (memory, handles) = (sample.usage.memory >> 20, sample.usage.handles);
            writeln!(f, "| {name} | {} | {failed} | {} | {memory} MiB | {handles} |", sample.requests(), sample.swaps)?;
        }
        let Some(last) = samples.last() else { return Ok(()) };
        writeln!(f, "\n| request | as expected |\n|---|---|")?;
        for (kind, count) in &last.good {
            writeln!(f, "| {kind} | {count} |")?;
        }
        writeln!(f, "\n| attack | outcome |\n|---|---|")?;
        for (attack, outcomes) in &last.attacks {
            let outcomes: Vec<String> =
                outcomes.iter().map(|(outcome, count)| format!("{outcome} × {count}")).collect();
            writeln!(f, "| {attack} | {} |", outcomes.join(", "))?;
        }
        for violation in &self.0.violations {
            writeln!(f, "\n✗ {violation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::Usage;

    fn sample(at: f64, failed: &[(&str, u64)]) -> Sample {
        Sample {
            at,
            good: [("agent", 7)].into(),
            failed: failed.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            attacks: [("spin", [("limit".to_owned(), 3)].into())].into(),
            swaps: 2,
            usage: Usage { memory: 100 << 20, anonymous: 80 << 20, handles: 30 },
        }
    }

    #[test]
    fn a_report_has_the_start_the_warm_up_each_minute_and_the_end() {
        let samples: Vec<Sample> = [0.0, 30.0, 60.0, 90.0, 120.0, 150.0].map(|at| sample(at, &[("x", 1)])).into();
        let report = Report(&Outcome { samples, violations: vec!["memory grew".into()] }).to_string();
        let times: Vec<&str> =
            report.lines().skip(2).take(4).map(|line| line.split(" | ").next().unwrap_or_default()).collect();
        assert_eq!(times, ["| start", "| 60 s, after warm-up", "| 120 s", "| end"], "{report}");
        assert!(report.contains("| start | 8 | 1 | 2 | 100 MiB | 30 |"), "{report}");
        assert!(report.contains("| agent | 7 |") && report.contains("| spin | limit × 3 |"), "{report}");
        assert!(report.ends_with("✗ memory grew\n"), "{report}");
    }
}
