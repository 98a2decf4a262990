//! Evaluation: `hatchery eval`, and its routes.

use anyhow::{Context, Result, ensure};
use hatchery_tests::{Folder, Host};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::hatchery;

/// The case of a set that the sample does not pass.
fn failing_set() -> Value {
    json!({
        "eval_set_id": "wrong",
        "eval_cases": [{
            "eval_id": "coin & <side>",
            "conversation": [{
                "user_content": {"role": "user", "parts": [{"text": "Roll a die with 20 sides", "thought": null}]},
                "final_response": {"role": "model", "parts": [{"text": "Heads"}]},
                "intermediate_data": {"tool_uses": [{"name": "flip_coin", "args": {}, "id": null}]},
            }],
        }],
    })
}

/// Serves the samples with all functions of the developer UI.
async fn serve_samples() -> Result<Host> {
    Host::serve(&Folder::with_samples()?).await
}

#[tokio::test]
async fn the_eval_set_of_a_sample_passes_as_often_as_it_is_run() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output = hatchery(&folder.served(), &["eval", "dice", "--runs", "3"]).await?;
    ensure!(output.success, "{}{}", output.stdout, output.stderr);
    let mut lines = output.stdout.lines();
    assert_eq!(lines.next(), Some("dice / rolls"));
    let heading = lines.next().context("a heading")?;
    assert!(heading.ends_with("runs  tool_trajectory_avg_score ≥ 1.00  response_match_score ≥ 0.60"), "{heading}");
    for case in ["twenty_sides", "impossible_die", "dice_then_primes"] {
        let line = lines.next().context("a case")?;
        assert!(line.starts_with(&format!("✓ {case}")) && line.contains("3/3"), "{line}");
    }
    assert_eq!(lines.collect::<Vec<_>>(), ["3 passed, 0 failed"]);
    Ok(())
}

#[tokio::test]
async fn a_case_that_fails_is_explained_and_ends_with_exit_code_1() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("dice/wrong.evalset.json", failing_set().to_string())?;
    let report = folder.file("report.xml");
    let report_path = report.to_str().context("a path in UTF-8")?;
    let output = hatchery(&folder.served(), &["eval", "dice", "wrong", "--junit", report_path]).await?;
    assert!(!output.success, "{}", output.stdout);
    for text in [
        "tool_trajectory_avg_score is 0.00, below 1.00",
        "expected flip_coin({}) → \"Heads\"",
        "observed roll_die({\"sides\":20}) → \"You rolled ",
        "0 passed, 1 failed",
    ] {
        assert!(output.stdout.contains(text), "{text} is not in {}", output.stdout);
    }
    let xml = std::fs::read_to_string(report)?;
    let expected = "<testsuite name=\"dice.wrong\" tests=\"1\" failures=\"1\" errors=\"0\">\n    \
                    <testcase classname=\"dice.wrong\" name=\"coin &amp; &lt;side&gt;\">\n      \
                    <failure message=\"tool_trajectory_avg_score is 0.00, below 1.00\">";
    assert!(xml.contains(expected), "{xml}");
    Ok(())
}

#[tokio::test]
async fn the_results_are_printed_even_if_the_report_cannot_be_written() -> Result<()> {
    let folder = Folder::with_samples()?;
    let output = hatchery(&folder.served(), &["eval", "dice", "--json", "--junit", "no-folder/report.xml"]).await?;
    assert!(!output.success && output.stderr.contains("cannot write no-folder/report.xml"), "{}", output.stderr);
    assert_eq!(output.json()?["passed"], 3);
    Ok(())
}

#[tokio::test]
async fn eval_prints_json_and_runs_single_cases_with_other_criteria() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("strict.json", json!({"criteria": {"response_match_score": 1.0}}).to_string())?;
    let args = ["eval", "dice", "rolls", "--case", "impossible_die", "--test-config", "strict.json", "--json"];
    let output = hatchery(&folder.served(), &args).await?;
    ensure!(output.success, "{}{}", output.stdout, output.stderr);
    let json = output.json()?;
    assert_eq!((&json["passed"], &json["failed"]), (&json!(1), &json!(0)));
    let result = &json["sets"][0]["result"]["evalCaseResults"][0];
    assert_eq!((&result["evalId"], &result["finalEvalStatus"]), (&json!("impossible_die"), &json!(1)));
    let metrics = result["overallEvalMetricResults"].as_array().context("metrics")?;
    let names: Vec<_> = metrics.iter().map(|metric| &metric["metricName"]).collect();
    assert_eq!(names, ["response_match_score"]);
    Ok(())
}

#[tokio::test]
async fn a_case_is_run_in_the_sets_that_have_it() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("dice/wrong.evalset.json", failing_set().to_string())?;
    let output = hatchery(&folder.served(), &["eval", "dice", "--case", "impossible_die", "--json"]).await?;
    ensure!(output.success, "{}", output.stderr);
    let json = output.json()?;
    assert_eq!((&json["passed"], &json["failed"]), (&json!(1), &json!(0)));
    let sets = json["sets"].as_array().context("sets")?;
    assert_eq!(sets.iter().map(|set| &set["result"]["evalSetId"]).collect::<Vec<_>>(), ["rolls"]);
    let output = hatchery(&folder.served(), &["eval", "dice", "--case", "impossible_die", "--case", "x"]).await?;
    let message = "eval case not found: x; it is in none of the sets rolls, wrong";
    ensure!(!output.success && output.stderr.contains(message), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn a_set_without_cases_does_not_pass() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("dice/empty.evalset.json", r#"{"evalSetId": "empty", "evalCases": []}"#)?;
    let output = hatchery(&folder.served(), &["eval", "dice", "empty"]).await?;
    let message = "error: nothing was evaluated: there are no cases in empty\n";
    ensure!(!output.success && output.stderr.ends_with(message), "{}{}", output.stdout, output.stderr);
    Ok(())
}

#[tokio::test]
async fn eval_names_what_does_not_exist() -> Result<()> {
    let folder = Folder::with_samples()?;
    for (args, message) in [
        (vec!["eval", "dice", "none"], "eval set not found: none; the sets of `dice`: rolls"),
        (vec!["eval", "nobody"], "app `nobody` not found; available: "),
        (vec!["eval", "greeter"], "app `greeter` has no eval sets; write greeter/NAME.evalset.json"),
        (vec!["eval", "dice", "--case", "x"], "eval case not found: x"),
        (vec!["eval", "dice", "--runs", "0"], "the number of runs is 0; it must be from 1 to 100"),
        (vec!["eval", "no/dice"], "no is not a folder"),
        (vec!["eval", "."], "; if . is the served folder, write ./APP"),
        (vec!["eval", ".", "dice"], "; if . is the served folder, write ./dice"),
    ] {
        let output = hatchery(&folder.served(), &args).await?;
        assert!(!output.success && output.stderr.contains(message), "{args:?}: {}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn a_session_becomes_a_case_that_is_run_over_the_routes_of_both_clients() -> Result<()> {
    let host = serve_samples().await?;
    let session = "/apps/dice/users/ada/sessions/s1";
    host.post(session, &json!({})).await?.json(200)?;
    let message = json!({
        "appName": "dice", "userId": "ada", "sessionId": "s1",
        "newMessage": {"role": "user", "parts": [{"text": "Which of 2, 4, 7, 9 and 13 are prime?"}]},
    });
    host.post("/run", &message).await?.json(200)?;

    // The newer client creates the set, the older one adds the session.
    let new = json!({"eval_set": {"eval_set_id": "mine", "eval_cases": []}});
    let created = host.post("/dev/apps/dice/eval-sets", &new).await?.json(200)?;
    assert_eq!(created["eval_set_id"], "mine");
    assert_eq!(host.get("/dev/apps/dice/eval_sets").await?.json(200)?, json!(["mine", "rolls"]));
    assert_eq!(host.get("/apps/dice/eval-sets").await?.json(200)?, json!({"evalSetIds": ["mine", "rolls"]}));
    let add = json!({"evalId": "primes", "sessionId": "s1", "userId": "ada"});
    host.post("/apps/dice/eval_sets/mine/add_session", &add).await?.json(200)?;
    assert_eq!(host.get("/apps/dice/eval_sets/mine/evals").await?.json(200)?, json!(["primes"]));
    let mut case = host.get("/dev/apps/dice/eval_sets/mine/evals/primes").await?.json(200)?;
    assert_eq!(case["conversation"][0]["intermediateData"]["toolUses"][0]["name"], "check_prime");
    assert_eq!(case["conversation"][0]["finalResponse"]["parts"][0]["text"], "Prime among them: [2,7,13].");

    let run = json!({
        "eval_case_ids": ["primes"],
        "eval_metrics": [{"metricName": "tool_trajectory_avg_score", "threshold": 1}, {"metricName": "response_match_score"}],
    });
    let results = host.post("/dev/apps/dice/eval-sets/mine/run", &run).await?.json(200)?;
    let result = &results["runEvalResults"][0];
    assert_eq!(
        (&result["appName"], &result["evalSetId"], &result["evalId"]),
        (&json!("dice"), &json!("mine"), &json!("primes"))
    );
    assert_eq!(result["finalEvalStatus"], 1, "{result}");
    assert_eq!(result["evalMetricResults"][0][0], json!({"metricName": "tool_trajectory_avg_score", "threshold": 1.0}));
    assert_eq!(result["evalMetricResults"][0][1]["score"], 1.0);

    // The session of the run can be read, and is not listed.
    let (user, id) = (text_of(&result["userId"])?, text_of(&result["sessionId"])?);
    let sessions = format!("/apps/dice/users/{user}/sessions");
    assert_eq!(host.get(&format!("{sessions}/{id}")).await?.json(200)?["id"], id.as_str());
    assert_eq!(host.get(&sessions).await?.json(200)?, json!([]));

    // Another expectation fails; the older client gets the results as an array.
    case["conversation"][0]["finalResponse"]["parts"][0]["text"] = json!("None of them");
    let put = host.request(Method::PUT, "/dev/apps/dice/eval_sets/mine/evals/primes").json(&case);
    host.send(put).await?.json(200)?;
    let older = json!({"evalIds": ["primes"], "evalMetrics": []});
    let results = host.post("/apps/dice/eval_sets/mine/run_eval", &older).await?.json(200)?;
    assert_eq!(results[0]["finalEvalStatus"], 2, "{results}");

    let ids = host.get("/dev/apps/dice/eval_results").await?.json(200)?;
    let ids: Vec<_> = ids.as_array().context("an array")?.iter().map(text_of).collect::<Result<_>>()?;
    assert_eq!(ids.len(), 2);
    let stored = host.get(&format!("/dev/apps/dice/eval_results/{}", ids[1])).await?.json(200)?;
    assert_eq!((&stored["evalSetResultId"], &stored["evalSetId"]), (&json!(ids[1]), &json!("mine")));
    assert_eq!(stored["evalCaseResults"][0]["finalEvalStatus"], 2);
    Ok(())
}

fn text_of(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).context("a string")
}
