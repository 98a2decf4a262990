//! The report of a load test.

use std::fmt;

use super::Row;

/// Formats rows as a Markdown table. Ratios are to the first row, which is the bare server.
pub struct Report<'a>(pub &'a [Row]);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| load | connections | pairs/s | CPU per pair | ratio | run p50 / p99 | first event p50 | memory | failed |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        let floor = self.0.first().map_or(f64::NAN, |row| row.cpu_per_pair);
        for row in self.0 {
            writeln!(
                f,
                "| {} | {} | {:.0} | {:.0} µs | {:.2} | {} / {} | {} | {} MiB | {} |",
                row.name,
                row.connections,
                row.pairs_per_second,
                row.cpu_per_pair,
                row.cpu_per_pair / floor,
                Micros(row.run.p50),
                Micros(row.run.p99),
                Micros(row.first_event.p50),
                row.memory >> 20,
                row.failed,
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>7.0} pairs/s  {:>6.0} µs CPU  p99 {:>8}  {:>3} failed  {}",
            self.pairs_per_second,
            self.cpu_per_pair,
            Micros(self.run.p99).to_string(),
            self.failed,
            self.name,
        )
    }
}

/// A duration with a readable unit.
struct Micros(f64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            micros if micros < 1e3 => write!(f, "{micros:.0} µs"),
            micros if micros < 1e5 => write!(f, "{:.1} ms", micros / 1e3),
            micros => write!(f, "{:.0} ms", micros / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Latencies;

    #[test]
    fn a_row_has_the_ratio_to_the_bare_server() {
        let latencies = Latencies { p50: 160.0, p99: 2_000.0, max: 250_000.0 };
        let row = |name: &str, cpu| Row {
            name: name.into(),
            connections: 8,
            pairs_per_second: 1_000.0,
            cpu_per_pair: cpu,
            first_event: latencies,
            run: latencies,
            failed: 0,
            memory: 40 << 20,
        };
        let report = Report(&[row("bare", 50.0), row("native", 125.0)]).to_string();
        let last = report.lines().last().unwrap();
        assert_eq!(last, "| native | 8 | 1000 | 125 µs | 2.50 | 160 µs / 2.0 ms | 160 µs | 40 MiB | 0 |");
        assert_eq!(Micros(250_000.0).to_string(), "250 ms");
    }
}
