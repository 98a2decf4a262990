//! The report of a load test.

use std::fmt;

use serde::Serialize;

use super::idle::IdleSessions;
use super::slopes::Slope;
use super::startup::Startup;
use super::{Row, scenario};

/// The name of the row of the bare server.
pub(super) const FLOOR: &str = "bare axum, bodies of the same size";
/// The name of the row of the bare server that calls a tool with bare Wasmtime.
pub(super) const TOOL_FLOOR: &str = "bare axum, tool in a component by bare Wasmtime";

/// The name of the row of the bare server with the events of [`scenario::STREAMS`].
pub(super) const STREAM_FLOOR: &str = "bare axum, the same event streams, 1,000 streams";

/// All measurements. It is displayed as Markdown tables.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Runs under load.
    pub rows: Vec<Row>,
    /// Starts of hosts.
    pub starts: Vec<Startup>,
    /// Turns in long sessions.
    pub slopes: Vec<Slope>,
    /// Hosts with many sessions.
    pub idle: Vec<IdleSessions>,
}

impl Report {
    /// Returns the server's CPU time for each pair of a row.
    fn cpu(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name).map(|row| row.cpu_per_pair)
    }

    fn rate(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name).map(|row| row.pairs_per_second)
    }

    /// Returns ratios of rows with their targets.
    fn ratios(&self) -> Vec<(String, f64, &'static str)> {
        use scenario::name;
        let mut ratios = Vec::new();
        let mut add =
            |what: String, ratio: Option<f64>, target| ratios.extend(ratio.map(|ratio| (what, ratio, target)));
        let ratio = |name: &str, other: &str| Some(self.rate(name)? / self.rate(other)?);
        let native = || Some(self.cpu(name::NATIVE)? / self.cpu(FLOOR)?);
        add("CPU of a native run, to bare axum".into(), native(), "≤ 2.5");
        let call = || {
            let ours = self.cpu(name::COMPONENT_TOOL)? - self.cpu(name::BUILT_IN_TOOL)?;
            Some(ours / (self.cpu(TOOL_FLOOR)? - self.cpu(FLOOR)?))
        };
        add("CPU of a call into a component, to bare Wasmtime in bare axum".into(), call(), "≤ 1.5");
        add("pairs/s of `dice` with SQLite, to memory".into(), ratio(name::DICE_SQLITE, name::DICE), "≥ 0.7");
        let streams = ratio(name::STREAMS, STREAM_FLOOR);
        add("pairs/s of 1,000 event streams, to bare axum with the same bytes".into(), streams, "≥ 0.4");
        let beside = ratio(name::SLOW_READERS, name::STREAM);
        add("pairs/s of event streams beside 200 slow readers, to none".into(), beside, "≥ 0.9");
        let is_rival = |row: &&Row| row.name.contains("two steps, native tool, sessions");
        for rival in self.rows.iter().filter(is_rival) {
            let dice = self.rate(name::DICE).map(|rate| rate / rival.pairs_per_second);
            add(format!("pairs/s of `dice` in memory, to {}", rival.name), dice, "≥ 1.3");
        }
        ratios
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_rows(f)?;
        let ratios = self.ratios();
        if !ratios.is_empty() {
            writeln!(f, "\n| ratio | result | target |\n|---|---|---|")?;
        }
        for (what, ratio, target) in ratios {
            writeln!(f, "| {what} | {ratio:.2} | {target} |")?;
        }
        self.write_starts(f)?;
        self.write_slopes(f)?;
        self.write_idle(f)
    }
}

impl Report {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| load | connections | pairs/s | CPU per pair | to bare axum | run p50 / p99 | first event p50 / p99 | memory | failed |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        let floor = self.rows.first().map_or(f64::NAN, |row| row.cpu_per_pair);
        for row in &self.rows {
            writeln!(
                f,
                "| {} | {} | {:.0} | {:.0} µs | {:.2} | {} / {} | {} / {} | {} MiB | {} |",
                row.name,
                row.connections,
                row.pairs_per_second,
                row.cpu_per_pair,
                row.cpu_per_pair / floor,
                Micros(row.run.p50),
                Micros(row.run.p99),
                Micros(row.first_event.p50),
                Micros(row.first_event.p99),
                row.memory >> 20,
                row.failed,
            )?;
        }
        Ok(())
    }

    fn write_starts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.starts.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n| components | listening | first answer | all loaded | memory | of that, not mapped files | idle CPU |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for start in &self.starts {
            writeln!(
                f,
                "| {} | {:.0} ms | {:.0} ms | {:.0} ms | {} MiB | {} MiB | {:.1} % |",
                start.components,
                start.listening,
                start.first_answer,
                start.loaded,
                start.memory >> 20,
                start.anonymous >> 20,
                start.idle_cpu * 100.0,
            )?;
        }
        Ok(())
    }

    fn write_slopes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.slopes.first() else { return Ok(()) };
        write!(f, "\n| turn after |")?;
        first.points.iter().try_for_each(|(turns, _)| write!(f, " {turns} turns |"))?;
        writeln!(f, " last to first |\n|---|{}---|", "---|".repeat(first.points.len()))?;
        for slope in &self.slopes {
            write!(f, "| {} |", slope.name)?;
            slope.points.iter().try_for_each(|(_, latencies)| write!(f, " {} |", Micros(latencies.p50)))?;
            // A slow server is measured for a limited time.
            f.write_str(&" |".repeat(first.points.len().saturating_sub(slope.points.len())))?;
            writeln!(f, " {:.2} |", slope.growth())?;
        }
        Ok(())
    }
}

impl Report {
    fn write_idle(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.idle.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n| idle sessions | in | memory | per session | first event p50 / p99 | run p50 / p99 |\n|---|---|---|---|---|---|"
        )?;
        for idle in &self.idle {
            writeln!(
                f,
                "| {} | {} | {} MiB | {:.1} KiB | {} / {} | {} / {} |",
                idle.sessions,
                idle.name,
                idle.memory >> 20,
                idle.memory_per_session / 1024.0,
                Micros(idle.first_event.p50),
                Micros(idle.first_event.p99),
                Micros(idle.run.p50),
                Micros(idle.run.p99),
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for IdleSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} idle sessions in {}: {} MiB, {:.1} KiB each, first event of a run p99 {}",
            self.sessions,
            self.name,
            self.memory >> 20,
            self.memory_per_session / 1024.0,
            Micros(self.first_event.p99),
        )
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

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>4} components: first answer after {:.0} ms, all loaded after {:.0} ms, {} MiB",
            self.components,
            self.first_answer,
            self.loaded,
            self.memory >> 20
        )
    }
}

impl fmt::Display for Slope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a turn in a long session takes {:.2} times that in a short one", self.name, self.growth())
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
    use scenario::name;

    fn row(name: &str, cpu: f64) -> Row {
        let latencies = Latencies { p50: 160.0, p99: 2_000.0, max: 250_000.0 };
        Row {
            name: name.into(),
            connections: 8,
            pairs_per_second: 1e6 / cpu,
            cpu_per_pair: cpu,
            first_event: latencies,
            run: latencies,
            failed: 0,
            memory: 40 << 20,
        }
    }

    #[test]
    fn a_row_has_its_ratio_to_the_bare_server() {
        let report = Report { rows: vec![row("bare", 50.0), row("native", 125.0)], ..Report::default() }.to_string();
        let last = report.lines().last().unwrap();
        assert_eq!(last, "| native | 8 | 8000 | 125 µs | 2.50 | 160 µs / 2.0 ms | 160 µs / 2.0 ms | 40 MiB | 0 |");
        assert_eq!(Micros(250_000.0).to_string(), "250 ms");
    }

    #[test]
    fn a_call_into_a_component_is_compared_with_bare_wasmtime() {
        let rows = vec![
            row(FLOOR, 50.0),
            row(TOOL_FLOOR, 70.0),
            row(name::BUILT_IN_TOOL, 200.0),
            row(name::COMPONENT_TOOL, 230.0),
        ];
        let ratios = Report { rows, ..Report::default() }.ratios();
        assert_eq!(ratios.len(), 1);
        assert!((ratios[0].1 - 1.5).abs() < 1e-9, "{ratios:?}");
    }

    #[test]
    fn event_streams_are_compared_with_the_bare_server_and_with_slow_readers() {
        let rows = vec![
            row(STREAM_FLOOR, 100.0),
            row(name::STREAMS, 200.0),
            row(name::STREAM, 90.0),
            row(name::SLOW_READERS, 100.0),
        ];
        let ratios = Report { rows, ..Report::default() }.ratios();
        let results: Vec<_> = ratios.iter().map(|(_, ratio, target)| (format!("{ratio:.2}"), *target)).collect();
        assert_eq!(results, [("0.50".to_owned(), "≥ 0.4"), ("0.90".to_owned(), "≥ 0.9")]);
    }

    #[test]
    fn idle_sessions_have_a_row_with_what_each_adds() {
        let latencies = Latencies { p50: 160.0, p99: 2_000.0, max: 250_000.0 };
        let idle = IdleSessions {
            name: "memory".into(),
            sessions: 10_000,
            memory: 120 << 20,
            memory_per_session: 8704.0,
            first_event: latencies,
            run: latencies,
        };
        let report = Report { idle: vec![idle], ..Report::default() }.to_string();
        let row = "| 10000 | memory | 120 MiB | 8.5 KiB | 160 µs / 2.0 ms | 160 µs / 2.0 ms |\n";
        assert!(report.ends_with(row), "{report}");
    }

    #[test]
    fn a_slope_compares_the_longest_session_with_the_shortest() {
        let point = |turns, p50| (turns, Latencies { p50, p99: p50, max: p50 });
        let slope = Slope { name: "dice, memory".into(), points: vec![point(10, 400.0), point(1000, 500.0)] };
        let slow = Slope { name: "slow".into(), points: vec![point(10, 400.0)] };
        let report = Report { slopes: vec![slope, slow], ..Report::default() }.to_string();
        let rows = "| dice, memory | 400 µs | 500 µs | 1.25 |\n| slow | 400 µs | | 1.00 |\n";
        assert!(report.ends_with(rows), "{report}");
    }
}
