//! How the cost of a turn grows with the length of its session: the latency of `POST /run` on one connection, in one
//! session, at several numbers of earlier turns.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::chart::{Chart, Line};
use super::client::Client;
use super::scenario::{self, DICE, NATIVE, Scenario, Sessions, Turn};
use super::{Latencies, Plan, SessionName};

/// Numbers of earlier turns at which turns are measured.
const LENGTHS: [usize; 6] = [10, 32, 100, 320, 1000, 3200];

/// Number of turns that are measured at each length.
const MEASURED: usize = 10;

/// Time after which no longer session of a server is measured. Where a turn reads all earlier ones, 3,200 turns would
/// take many minutes.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Turns of a session at growing lengths.
#[derive(Debug, Clone, Serialize)]
pub struct Slope {
    /// The measured quantity.
    pub name: String,
    /// The number of earlier turns, and the latencies of the next ones.
    pub points: Vec<(usize, Latencies)>,
}

impl Slope {
    /// Returns the median latency at the longest session, in medians at the shortest.
    pub fn growth(&self) -> f64 {
        let median = |point: Option<&(usize, Latencies)>| point.map_or(f64::NAN, |(_, latencies)| latencies.p50);
        median(self.points.last()) / median(self.points.first())
    }
}

/// Measures sessions in memory and in SQLite. Calls `on_slope` with each.
///
/// # Errors
/// If the host does not start, or dies, or gives an unexpected answer.
pub async fn run(plan: &Plan, mut on_slope: impl FnMut(&Slope)) -> anyhow::Result<Vec<Slope>> {
    const SUBJECTS: [(&str, Turn, Sessions); 4] = [
        ("native agent, memory", NATIVE, Sessions::Memory),
        ("dice, memory", DICE, Sessions::Memory),
        ("native agent, SQLite", NATIVE, Sessions::Sqlite),
        ("dice, SQLite", DICE, Sessions::Sqlite),
    ];
    let mut slopes = Vec::new();
    for (name, turn, sessions) in SUBJECTS {
        let host = scenario::serve(sessions).await?;
        host.wait_for_app(turn.app).await?;
        let slope = measure(name, &host.url, &Scenario::new(name, turn, sessions)).await?;
        on_slope(&slope);
        slopes.push(slope);
    }
    for rival in &plan.rivals {
        let server = rival.start().await?;
        let name = format!("{}, native tool, memory", rival.name);
        let slope = measure(&name, &server.url, &Scenario::new("", DICE, Sessions::Memory)).await?;
        on_slope(&slope);
        slopes.push(slope);
    }
    Ok(slopes)
}

async fn measure(name: &str, url: &str, scenario: &Scenario) -> anyhow::Result<Slope> {
    let session = SessionName::new(0);
    let mut client = Client::connect(url).await?;
    client.create_session(scenario, &session).await?.map_err(|answer| anyhow!("{name}: {answer}"))?;
    let (mut points, mut turns, started) = (Vec::new(), 0, Instant::now());
    'lengths: for length in LENGTHS {
        let mut times: Vec<Duration> = Vec::with_capacity(MEASURED);
        while turns < length + MEASURED {
            if started.elapsed() > MAX_TIME {
                break 'lengths;
            }
            let run = client.run(scenario, &session).await?;
            let run = run.map_err(|answer| anyhow!("{answer}")).with_context(|| format!("{name}, turn {turns}"))?;
            times.extend((turns >= length).then_some(run.end));
            turns += 1;
        }
        points.push((length, Latencies::new(times)));
    }
    Ok(Slope { name: name.to_owned(), points })
}

/// Draws slopes as an SVG picture with logarithmic axes.
pub fn draw(slopes: &[Slope]) -> String {
    let lines = slopes.iter().map(|slope| Line {
        name: &slope.name,
        points: slope.points.iter().map(|(turns, latencies)| (*turns as f64, latencies.p50 / 1e3)).collect(),
    });
    Chart { title: "Time of a turn", x: "earlier turns of the session", y: "ms, median", lines: lines.collect() }
        .to_svg()
}
