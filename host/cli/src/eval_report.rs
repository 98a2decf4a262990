//! Reports of `hatchery eval`: a table, and JUnit's XML.

use std::fmt::Write as _;
use std::io::{self, Write};

use hatchery_eval::{CaseSummary, EvalSetResult, EvalStatus, InvocationRecord, MetricSummary};

use crate::terminal::{BOLD, DIM, ERROR, SUCCESS, escape_control, truncate};

/// The longest text of a line about a turn.
const MAX_CHARS: usize = 160;

pub struct SetReport {
    pub app: String,
    pub cases: Vec<CaseSummary>,
    pub result: EvalSetResult,
}

/// Returns true if a case has passed. One that could not be evaluated has not.
pub fn has_passed(case: &CaseSummary) -> bool {
    case.eval_status == EvalStatus::Passed
}

impl SetReport {
    /// Prints a table of the cases, then the turns of those that have not passed.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{BOLD}{} / {}{BOLD:#}", escape_control(&self.app), self.result.eval_set_id)?;
        let width = self.cases.iter().map(|case| shown_id(case).chars().count()).max().unwrap_or_default().max(4);
        let metrics = self.cases.first().map(|case| case.metrics.as_slice()).unwrap_or_default();
        write!(out, "{DIM}  {:width$}  {:>7}", "case", "runs")?;
        for metric in metrics {
            write!(out, "  {} ≥ {:.2}", metric.metric_name, metric.threshold)?;
        }
        writeln!(out, "{DIM:#}")?;
        for case in &self.cases {
            let (style, sign) = mark(case.eval_status);
            let runs = format!("{}/{}", case.passed_runs, case.runs);
            write!(out, "{style}{sign}{style:#} {:width$}  {runs:>7}", shown_id(case))?;
            for metric in &case.metrics {
                // As wide as the heading: the name, the sign and the threshold.
                let column = metric.metric_name.len() + 7;
                let (style, _) = mark(metric.eval_status);
                write!(out, "  {style}{:>column$}{style:#}", shown_score(metric))?;
            }
            writeln!(out)?;
        }
        self.cases.iter().filter(|case| !has_passed(case)).try_for_each(|case| self.print_failure(case, out))
    }

    fn print_failure(&self, case: &CaseSummary, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\n  {}", shown_id(case))?;
        for line in reasons(case) {
            writeln!(out, "    {ERROR}✗{ERROR:#} {}", truncate(&line, MAX_CHARS * 2))?;
        }
        let mut runs = self.result.eval_case_results.iter().filter(|run| run.eval_id == case.eval_id);
        let Some(run) = runs.find(|run| run.final_eval_status != EvalStatus::Passed) else { return Ok(()) };
        for turn in &run.eval_metric_result_per_invocation {
            let passed = turn.eval_metric_results.iter().all(|result| result.eval_status == EvalStatus::Passed);
            if !passed {
                writeln!(out, "    {:?}", truncate(&turn.expected_invocation.user_content.text(), MAX_CHARS))?;
                writeln!(out, "      {DIM}expected{DIM:#} {}", describe(&turn.expected_invocation))?;
                writeln!(out, "      {DIM}observed{DIM:#} {}", describe(&turn.actual_invocation))?;
            }
        }
        writeln!(out)
    }
}

fn shown_id(case: &CaseSummary) -> String {
    truncate(&case.eval_id, 40)
}

fn shown_score(metric: &MetricSummary) -> String {
    metric.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.2}"))
}

fn mark(status: EvalStatus) -> (anstyle::Style, &'static str) {
    match status {
        EvalStatus::Passed => (SUCCESS, "✓"),
        EvalStatus::Failed => (ERROR, "✗"),
        EvalStatus::NotEvaluated => (DIM, "?"),
    }
}

/// Returns the reasons why a case has not passed, one sentence each.
fn reasons(case: &CaseSummary) -> Vec<String> {
    let of_metric = |metric: &MetricSummary| {
        let explanation = metric.explanation.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        match (metric.eval_status, metric.score) {
            (EvalStatus::Passed, _) => None,
            (_, Some(score)) => {
                Some(format!("{} is {score:.2}, below {:.2}{explanation}", metric.metric_name, metric.threshold))
            }
            (_, None) => Some(format!("{} has no score{explanation}", metric.metric_name)),
        }
    };
    case.errors.iter().cloned().chain(case.metrics.iter().filter_map(of_metric)).collect()
}

/// Returns the tool calls and the response of a turn as one line.
fn describe(turn: &InvocationRecord) -> String {
    let calls = turn.tool_calls().into_iter().map(|call| {
        let args = serde_json::Value::from(call.args.clone());
        format!("{}({args})", call.name)
    });
    let response = turn.response_text().map(|text| format!("{text:?}"));
    let parts: Vec<_> = calls.chain(response).collect();
    if parts.is_empty() { "nothing".into() } else { truncate(&parts.join(" → "), MAX_CHARS) }
}

/// Returns the report of all sets in JUnit's format. Cases without a score are errors.
pub fn junit(reports: &[SetReport]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for report in reports {
        let count = |status| report.cases.iter().filter(|case| case.eval_status == status).count();
        let name = escape_xml(&format!("{}.{}", report.app, report.result.eval_set_id));
        // Writing to a string cannot fail.
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">",
            report.cases.len(),
            count(EvalStatus::Failed),
            count(EvalStatus::NotEvaluated)
        );
        for case in &report.cases {
            xml.push_str(&junit_case(&name, case));
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn junit_case(suite: &str, case: &CaseSummary) -> String {
    let head = format!("    <testcase classname=\"{suite}\" name=\"{}\"", escape_xml(&case.eval_id));
    let element = match case.eval_status {
        EvalStatus::Passed => return format!("{head}/>\n"),
        EvalStatus::Failed => "failure",
        EvalStatus::NotEvaluated => "error",
    };
    let reasons = reasons(case);
    let first = reasons.first().map(|reason| escape_xml(reason)).unwrap_or_default();
    let all = escape_xml(&reasons.join("\n"));
    format!("{head}>\n      <{element} message=\"{first}\">{all}</{element}>\n    </testcase>\n")
}

/// Escapes a string for XML. Characters that XML does not have become `�`.
fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' | '\r' => {
                let _ = write!(escaped, "&#{};", u32::from(character));
            }
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_has_no_sign_that_ends_an_attribute_or_is_not_allowed() {
        assert_eq!(escape_xml("a<b> & \"c\"\n\u{1b}[2J é"), "a&lt;b&gt; &amp; &quot;c&quot;&#10;\u{fffd}[2J é");
    }

    #[test]
    fn a_case_that_failed_has_its_reasons() {
        let metric = |score, eval_status, explanation: Option<&str>| MetricSummary {
            metric_name: "response_match_score",
            threshold: 0.8,
            score,
            eval_status,
            explanation: explanation.map(Into::into),
        };
        let case = |eval_status, metrics, errors| CaseSummary {
            eval_id: "a&b".into(),
            eval_status,
            runs: 1,
            passed_runs: 0,
            metrics,
            errors,
        };
        let failed =
            case(EvalStatus::Failed, vec![metric(Some(0.5), EvalStatus::Failed, None)], vec!["turn 1: no".into()]);
        assert_eq!(
            junit_case("app.set", &failed),
            "    <testcase classname=\"app.set\" name=\"a&amp;b\">\n      <failure message=\"turn 1: no\">turn 1: \
             no&#10;response_match_score is 0.50, below 0.80</failure>\n    </testcase>\n"
        );
        let unknown = case(EvalStatus::NotEvaluated, vec![metric(None, EvalStatus::NotEvaluated, Some("why"))], vec![]);
        assert!(junit_case("s", &unknown).contains("<error message=\"response_match_score has no score: why\">"));
        let passed = case(EvalStatus::Passed, vec![metric(Some(1.0), EvalStatus::Passed, None)], vec![]);
        assert_eq!(junit_case("s", &passed), "    <testcase classname=\"s\" name=\"a&amp;b\"/>\n");
    }
}
