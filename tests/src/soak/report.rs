//! The numbers of a soak for people.

use std::collections::BTreeMap;
use std::fmt;

use super::{Outcome, Sample};

/// Seconds between two lines of the table.
const MINUTE: f64 = 60.0;

/// The place of the sample with which the end is compared.
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

/// All of an outcome, as tables of Markdown.
pub struct Report<'a>(pub &'a Outcome);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = &self.0.samples;
        writeln!(f, "| time | requests | failed | swaps | memory | handles |\n|---|---|---|---|---|---|")?;
        let mut next = MINUTE;
        for (place, sample) in samples.iter().enumerate() {
            let name = match place {
                0 => "begin".to_owned(),
                _ if place + 1 == samples.len() => "end".to_owned(),
                _ if place == warm_up(samples) => format!("{:.0} s, after warm-up", sample.at),
                _ if sample.at >= next => format!("{:.0} s", sample.at),
                _ => continue,
            };
            next = (sample.at / MINUTE).floor() * MINUTE + MINUTE;
            let failed: u64 = sample.failed.values().sum();
            let (memory, handles) = (sample.usage.memory >> 20, sample.usage.handles);
            writeln!(f, "| {name} | {} | {failed} | {} | {memory} MiB | {handles} |", sample.requests(), sample.swaps)?;
        }
        let Some(last) = samples.last() else { return Ok(()) };
        writeln!(f, "\n| request | ended as it must |\n|---|---|")?;
        for (kind, count) in &last.good {
            writeln!(f, "| {kind} | {count} |")?;
        }
        writeln!(f, "\n| attack | ended by |\n|---|---|")?;
        for (attack, endings) in &last.attacks {
            let endings: Vec<String> = endings.iter().map(|(ending, count)| format!("{ending} × {count}")).collect();
            writeln!(f, "| {attack} | {} |", endings.join(", "))?;
        }
        for complaint in &self.0.complaints {
            writeln!(f, "\n✗ {complaint}")?;
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
            attacks: [("spin", [("limits.cpu".to_owned(), 3)].into())].into(),
            swaps: 2,
            usage: Usage { memory: 100 << 20, handles: 30 },
        }
    }

    #[test]
    fn a_report_has_the_begin_the_warm_up_each_minute_and_the_end() {
        let samples: Vec<Sample> = [0.0, 30.0, 60.0, 90.0, 120.0, 150.0].map(|at| sample(at, &[("x", 1)])).into();
        let report = Report(&Outcome { samples, complaints: vec!["memory grew".into()] }).to_string();
        let times: Vec<&str> =
            report.lines().skip(2).take(4).map(|line| line.split(" | ").next().unwrap_or_default()).collect();
        assert_eq!(times, ["| begin", "| 60 s, after warm-up", "| 120 s", "| end"], "{report}");
        assert!(report.contains("| begin | 8 | 1 | 2 | 100 MiB | 30 |"), "{report}");
        assert!(report.contains("| agent | 7 |") && report.contains("| spin | limits.cpu × 3 |"), "{report}");
        assert!(report.ends_with("✗ memory grew\n"), "{report}");
    }
}
