//! The tests of an app, for ADK's web client: sessions in files of the app, below `/apps/{app}` and `/dev/apps/{app}`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json};
use hatchery::{AppTests, AppTestsError, TestedTurn};
use hatchery_core::JsonMap;
use hatchery_engine::{App, Runner};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::builder::{app_files, record_edit, require_full};
use super::evaluation::record_deletion;
use crate::api_document::ApiRouter;
use crate::body::LargeBody;
use crate::error::ApiError;
use crate::extract::{Params, QueryParams, RawJson};
use crate::state::AppState;

const TEXT: &str = "text/plain; charset=utf-8";

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, write, delete))
        .routes(routes!(rebuild))
        .routes(routes!(run))
        .nest("/apps/{app}", aliases())
        .layer(Extension(LargeBody))
}

/// Returns all routes, without the prefix `/dev`.
fn aliases() -> ApiRouter {
    ApiRouter::new()
        .route("/tests", get(list))
        .route("/tests/{test}", get(read).put(write).delete(delete))
        .route("/tests/rebuild", post(rebuild))
        .route("/tests/run", post(run))
}

/// Returns the tests of the apps, if clients may read and change them.
fn tests(state: &AppState) -> Result<AppTests, ApiError> {
    require_full(state)?;
    Ok(app_files(state)?.tests())
}

/// Returns the names of the tests of an app.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/tests",
    tag = "tests",
    responses((status = 200, description = "The names", body = Vec<String>))
)]
async fn list(State(state): State<AppState>, Params(app): Params<String>) -> Result<Json<Vec<String>>, ApiError> {
    let tests = tests(&state)?;
    let app = state.app(&app)?;
    Ok(Json(tests.names(&app.name).await?))
}

/// Returns a test: the JSON of a session.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/tests/{test}",
    tag = "tests",
    responses((status = 200, description = "The test", body = Object))
)]
async fn read(
    State(state): State<AppState>,
    Params((app, test)): Params<(String, String)>,
) -> Result<Response, ApiError> {
    let tests = tests(&state)?;
    let app = state.app(&app)?;
    let json = tests.read(&app.name, &test).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

#[derive(Deserialize, ToSchema)]
struct TestBody {
    /// A session with `events`.
    #[serde(alias = "sessionData")]
    #[schema(value_type = Object)]
    session_data: JsonMap,
}

/// The result of a change.
#[derive(Serialize, ToSchema)]
struct TestChange {
    /// `success`.
    status: &'static str,
    /// The name of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

impl TestChange {
    fn success(file: Option<String>) -> Json<Self> {
        Json(Self { status: "success", file })
    }
}

/// Makes a test of a session, or replaces one.
#[utoipa::path(
    put,
    path = "/dev/apps/{app}/tests/{test}",
    tag = "tests",
    request_body = TestBody,
    responses((status = 200, description = "The test is written", body = TestChange))
)]
async fn write(
    State(state): State<AppState>,
    Params((app, test)): Params<(String, String)>,
    body: RawJson,
) -> Result<Json<TestChange>, ApiError> {
    let tests = tests(&state)?;
    let app = state.app(&app)?;
    // It may be large.
    let parsed = tokio::task::spawn_blocking(move || body.parse::<TestBody>()).await;
    let TestBody { session_data } = parsed.map_err(|_| ApiError::internal())??;
    let written = tests.write(&app.name, &test, session_data).await;
    record_edit(&app.name, &format!("tests/{test}"), written.is_ok());
    Ok(TestChange::success(Some(written?)))
}

/// Deletes a test.
#[utoipa::path(
    delete,
    path = "/dev/apps/{app}/tests/{test}",
    tag = "tests",
    responses((status = 200, description = "The test is deleted", body = TestChange))
)]
async fn delete(
    State(state): State<AppState>,
    Params((app, test)): Params<(String, String)>,
) -> Result<Json<TestChange>, ApiError> {
    let tests = tests(&state)?;
    let app = state.app(&app)?;
    let file = tests.delete(&app.name, &test).await?;
    record_deletion(&app.name, &format!("delete the test `{file}`"));
    Ok(TestChange::success(Some(file)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TestQuery {
    /// The name of a test. Default: all.
    test_name: Option<String>,
}

/// Returns the names of the requested tests.
async fn select(tests: &AppTests, app: &App, query: TestQuery) -> Result<VecDeque<String>, AppTestsError> {
    match query.test_name.filter(|name| !name.is_empty()) {
        Some(name) => {
            // An error is a response as long as the stream has not begun.
            tests.read(&app.name, &name).await?;
            Ok([name].into())
        }
        None => Ok(tests.names(&app.name).await?.into()),
    }
}

/// Runs the messages of tests with the models of the app, and replaces the events of the tests. Ends at the first run
/// that fails.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/tests/rebuild",
    tag = "tests",
    params(TestQuery),
    responses((status = 200, description = "The tests are rebuilt", body = TestChange))
)]
async fn rebuild(
    State(state): State<AppState>,
    Params(app): Params<String>,
    QueryParams(query): QueryParams<TestQuery>,
) -> Result<Json<TestChange>, ApiError> {
    let tests = tests(&state)?;
    let app = state.app(&app)?;
    for name in select(&tests, &app, query).await? {
        let rebuilt = tests.rebuild(state.runner(), &app, &name).await;
        record_edit(&app.name, &format!("tests/{name}"), rebuilt.is_ok());
        rebuilt?;
    }
    Ok(TestChange::success(None))
}

/// Runs tests with the recorded answers of models. The text has a line for each test as it ends, a diff if its events
/// differ, and the numbers of passed and failed tests at the end.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/tests/run",
    tag = "tests",
    params(TestQuery),
    responses((status = 200, description = "The results", body = String, content_type = "text/plain"))
)]
async fn run(
    State(state): State<AppState>,
    Params(app): Params<String>,
    QueryParams(query): QueryParams<TestQuery>,
) -> Result<Response, ApiError> {
    let tests = tests(&state)?;
    let app = state.app(&app)?;
    let names = select(&tests, &app, query).await?;
    let run = TestRun { tests, runner: state.runner().clone(), app, names, passed: 0, failed: 0 };
    // The client sees each result as soon as it is there.
    let lines = futures::stream::unfold(Some(run), |run| async move {
        let mut run = run?;
        let result = run.next().await;
        Some(match result {
            Some(result) => (Ok::<_, Infallible>(Bytes::from(result)), Some(run)),
            None => (Ok(Bytes::from(run.summary())), None),
        })
    });
    Ok(([(header::CONTENT_TYPE, TEXT)], Body::from_stream(lines)).into_response())
}

/// Tests that run one after the other.
struct TestRun {
    tests: AppTests,
    runner: Runner,
    app: Arc<App>,
    /// The tests that have not run.
    names: VecDeque<String>,
    passed: usize,
    failed: usize,
}

impl TestRun {
    /// Runs the next test, and returns its result as text; `None` after the last one.
    async fn next(&mut self) -> Option<String> {
        let name = self.names.pop_front()?;
        let problem = match self.tests.run(&self.runner, &self.app, &name).await {
            Ok(turns) => first_problem(&turns),
            Err(error) => Some(error.to_string()),
        };
        Some(match problem {
            None => {
                self.passed += 1;
                format!("{name}: passed\n")
            }
            Some(problem) => {
                self.failed += 1;
                let lines: String = problem.lines().map(|line| format!("  {line}\n")).collect();
                format!("{name}: failed\n{lines}")
            }
        })
    }

    fn summary(&self) -> String {
        if self.passed + self.failed > 0 {
            return format!("{} passed, {} failed\n", self.passed, self.failed);
        }
        let app = &self.app.name;
        format!("`{app}` has no tests; promote a session to a test, or write {app}/tests/NAME.json\n")
    }
}

fn first_problem(turns: &[TestedTurn]) -> Option<String> {
    turns.iter().enumerate().find_map(|(index, turn)| {
        let problem = turn.problem.as_ref()?;
        Some(format!("turn {} ({:?}): {problem}", index + 1, turn.message))
    })
}

impl From<AppTestsError> for ApiError {
    fn from(error: AppTestsError) -> Self {
        let (status, code) = match &error {
            AppTestsError::NoFolder(_) => (StatusCode::NOT_FOUND, "NO_FOLDER"),
            AppTestsError::NotFound { .. } => (StatusCode::NOT_FOUND, "TEST_NOT_FOUND"),
            AppTestsError::InvalidName(_) => (StatusCode::BAD_REQUEST, "INVALID_NAME"),
            AppTestsError::NotAFolder(_) | AppTestsError::NotAFile(_) => (StatusCode::CONFLICT, "TEST_NOT_WRITABLE"),
            AppTestsError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "INVALID_TEST"),
            AppTestsError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE"),
            AppTestsError::TooMany(_) => (StatusCode::CONFLICT, "TOO_MANY_TESTS"),
            AppTestsError::NotRebuilt { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "TEST_NOT_REBUILT"),
            AppTestsError::Run(_) => (StatusCode::INTERNAL_SERVER_ERROR, "TEST_NOT_RUN"),
            AppTestsError::File(cause) => {
                tracing::error!(%cause, "the tests of an app cannot be used");
                return Self::internal();
            }
        };
        Self::new(status, code, error.to_string())
    }
}
