//! Evaluation: sets and their cases, runs, results and metrics, below `/apps/{app}` and `/dev/apps/{app}`. Older
//! clients use the paths with `_`, newer ones those with `-`.

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hatchery::DevUi;
use hatchery_eval::{
    EvalCase, EvalCaseResult, EvalError, EvalRequest, EvalSet, EvalSetResult, Metric, MetricResult, metric_infos,
    to_snake_case,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::api_document::{ApiRouter, schemas};
use crate::body::LargeBody;
use crate::error::ApiError;
use crate::extract::{Json, Params, RawJson};
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new()
        .merge(documented_routes())
        .merge(ApiRouter::new().nest("/apps/{app}", aliases()).nest("/dev/apps/{app}", older_routes()))
        .layer(Extension(LargeBody))
}

fn documented_routes() -> ApiRouter {
    ApiRouter::new()
        .routes(routes!(set_list, create))
        .routes(routes!(set, delete_set))
        .routes(routes!(case_ids))
        .routes(routes!(case, replace_case, delete_case))
        .routes(routes!(add_session))
        .routes(routes!(run))
        .routes(routes!(result_list))
        .routes(routes!(result))
        .routes(routes!(metrics_info))
}

/// Returns all routes, without the prefix `/dev`.
fn aliases() -> ApiRouter {
    older_routes()
        .route("/eval-sets", get(set_list).post(create))
        .route("/eval-sets/{set}", get(set).delete(delete_set))
        .route("/eval-sets/{set}/eval-cases", get(case_ids))
        .route("/eval-sets/{set}/eval-cases/{case}", get(case).put(replace_case).delete(delete_case))
        .route("/eval-sets/{set}/add-session", post(add_session))
        .route("/eval-sets/{set}/run", post(run))
        .route("/eval-results", get(result_list))
        .route("/eval-results/{result}", get(result))
        .route("/metrics-info", get(metrics_info))
}

fn older_routes() -> ApiRouter {
    ApiRouter::new()
        .route("/eval_sets", get(set_ids))
        .route("/eval_sets/{set}", get(set).post(create_named).delete(delete_set))
        .route("/eval_sets/{set}/evals", get(case_ids))
        .route("/eval_sets/{set}/evals/{case}", get(case).put(replace_case).delete(delete_case))
        .route("/eval_sets/{set}/add_session", post(add_session))
        .route("/eval_sets/{set}/add-session", post(add_session))
        .route("/eval_sets/{set}/run_eval", post(run_older))
        .route("/eval_sets/{set}/run-eval", post(run_older))
        .route("/eval_results", get(result_ids))
        .route("/eval_results/{result}", get(result))
        .route("/eval_metrics", get(metrics))
}

async fn set_ids(
    State(state): State<AppState>,
    Params(app): Params<String>,
) -> Result<axum::Json<Vec<String>>, ApiError> {
    Ok(axum::Json(state.evaluations().set_ids(&*state.app(&app)?).await?))
}

/// Returns the ids of the eval sets of an app.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/eval-sets",
    tag = "evaluation",
    responses((status = 200, description = "The ids", body = schemas::EvalSetIds))
)]
async fn set_list(State(state): State<AppState>, Params(app): Params<String>) -> Result<axum::Json<Value>, ApiError> {
    Ok(axum::Json(json!({"evalSetIds": state.evaluations().set_ids(&*state.app(&app)?).await?})))
}

/// Returns a set, with keys in snake_case as newer clients expect.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/eval-sets/{set}",
    tag = "evaluation",
    responses((status = 200, description = "The set", body = schemas::EvalSet))
)]
async fn set(
    State(state): State<AppState>,
    Params((app, set)): Params<(String, String)>,
) -> Result<axum::Json<Value>, ApiError> {
    snake_case(&state.evaluations().set(&*state.app(&app)?, &set).await?)
}

fn snake_case(set: &EvalSet) -> Result<axum::Json<Value>, ApiError> {
    let json = serde_json::to_value(set).map_err(|_| ApiError::internal())?;
    Ok(axum::Json(to_snake_case(json)))
}

/// Creates the set in the body: `{"evalSet": {…}}`.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/eval-sets",
    tag = "evaluation",
    request_body = Object,
    responses((status = 200, description = "The set", body = schemas::EvalSet))
)]
async fn create(
    State(state): State<AppState>,
    Params(app): Params<String>,
    Json(mut body): Json<Value>,
) -> Result<axum::Json<Value>, ApiError> {
    require_full(&state)?;
    let key = if body.get("evalSet").is_some() { "evalSet" } else { "eval_set" };
    let set =
        body.get_mut(key).map(Value::take).ok_or_else(|| ApiError::invalid("invalid body: missing field `evalSet`"))?;
    let set = EvalSet::from_value(set, "evalSet")?;
    snake_case(&state.evaluations().create_set(&*state.app(&app)?, set).await?)
}

/// Creates a set with the id in the path. The optional body is the set.
async fn create_named(
    State(state): State<AppState>,
    Params((app, id)): Params<(String, String)>,
    body: RawJson,
) -> Result<axum::Json<Value>, ApiError> {
    require_full(&state)?;
    let set = if body.is_empty() { EvalSet::new("") } else { EvalSet::from_value(body.parse()?, "the body")? };
    let set = EvalSet { eval_set_id: id, ..set };
    snake_case(&state.evaluations().create_set(&*state.app(&app)?, set).await?)
}

/// Deletes a set.
#[utoipa::path(
    delete,
    path = "/dev/apps/{app}/eval-sets/{set}",
    tag = "evaluation",
    responses((status = 200, description = "The set is deleted"))
)]
async fn delete_set(
    State(state): State<AppState>,
    Params((app, set)): Params<(String, String)>,
) -> Result<axum::Json<Value>, ApiError> {
    require_full(&state)?;
    let app = state.app(&app)?;
    state.evaluations().delete_set(&app, &set).await?;
    record_deletion(&app.name, &format!("delete the eval set `{set}`"));
    Ok(axum::Json(Value::Null))
}

/// Writes a deletion to the audit log.
pub(super) fn record_deletion(app: &str, action: &str) {
    tracing::info!(target: "hatchery::audit", %app, action, decision = "deleted", "deletion");
}

/// Returns the ids of the cases of a set.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/eval-sets/{set}/eval-cases",
    tag = "evaluation",
    responses((status = 200, description = "The ids", body = [String]))
)]
async fn case_ids(
    State(state): State<AppState>,
    Params((app, set)): Params<(String, String)>,
) -> Result<axum::Json<Vec<String>>, ApiError> {
    let set = state.evaluations().set(&*state.app(&app)?, &set).await?;
    Ok(axum::Json(set.eval_cases.into_iter().map(|case| case.eval_id).collect()))
}

type CaseParams = Params<(String, String, String)>;

/// Returns a case of a set.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/eval-sets/{set}/eval-cases/{case}",
    tag = "evaluation",
    responses((status = 200, description = "The case", body = schemas::EvalCase))
)]
async fn case(
    State(state): State<AppState>,
    Params((app, set, case)): CaseParams,
) -> Result<axum::Json<EvalCase>, ApiError> {
    let set = state.evaluations().set(&*state.app(&app)?, &set).await?;
    match set.eval_cases.into_iter().find(|stored| stored.eval_id == case) {
        Some(stored) => Ok(axum::Json(stored)),
        None => Err(EvalError::CaseNotFound { set: set.eval_set_id, case }.into()),
    }
}

/// Replaces a case.
#[utoipa::path(
    put,
    path = "/dev/apps/{app}/eval-sets/{set}/eval-cases/{case}",
    tag = "evaluation",
    request_body = schemas::EvalCase,
    responses((status = 200, description = "The case is replaced"))
)]
async fn replace_case(
    State(state): State<AppState>,
    Params((app, set, id)): CaseParams,
    Json(body): Json<Value>,
) -> Result<axum::Json<Value>, ApiError> {
    require_full(&state)?;
    let mut case = EvalCase::from_value(body)?;
    if !case.eval_id.is_empty() && case.eval_id != id {
        return Err(ApiError::bad_input(
            "`evalId` differs from the id in the path; the id of a case cannot be changed",
        ));
    }
    case.eval_id = id;
    state.evaluations().replace_case(&*state.app(&app)?, &set, case).await?;
    Ok(axum::Json(Value::Null))
}

/// Deletes a case.
#[utoipa::path(
    delete,
    path = "/dev/apps/{app}/eval-sets/{set}/eval-cases/{case}",
    tag = "evaluation",
    responses((status = 200, description = "The case is deleted"))
)]
async fn delete_case(
    State(state): State<AppState>,
    Params((app, set, case)): CaseParams,
) -> Result<axum::Json<Value>, ApiError> {
    require_full(&state)?;
    let app = state.app(&app)?;
    state.evaluations().delete_case(&app, &set, &case).await?;
    record_deletion(&app.name, &format!("delete the case `{case}` of the eval set `{set}`"));
    Ok(axum::Json(Value::Null))
}

/// A session to add to a set as a case.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AddSessionBody {
    #[serde(alias = "eval_id")]
    eval_id: String,
    #[serde(alias = "session_id")]
    session_id: String,
    #[serde(alias = "user_id")]
    user_id: String,
}

/// Adds a case with the turns of a session.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/eval-sets/{set}/add-session",
    tag = "evaluation",
    request_body = AddSessionBody,
    responses((status = 200, description = "The case is added"))
)]
async fn add_session(
    State(state): State<AppState>,
    Params((app, set)): Params<(String, String)>,
    Json(body): Json<AddSessionBody>,
) -> Result<axum::Json<Value>, ApiError> {
    require_full(&state)?;
    let app = state.app(&app)?;
    state.evaluations().add_session(&app, &set, &body.eval_id, &body.user_id, &body.session_id).await?;
    Ok(axum::Json(Value::Null))
}

/// The request for an evaluation.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = EvalRunBody)]
#[serde(rename_all = "camelCase")]
struct RunBody {
    /// The cases to run. Default: `evalIds`.
    #[serde(alias = "eval_case_ids")]
    eval_case_ids: Option<Vec<String>>,
    /// The cases to run, as older clients name them. Default: all.
    #[serde(alias = "eval_ids")]
    eval_ids: Option<Vec<String>>,
    #[serde(alias = "eval_metrics")]
    #[schema(value_type = Option<Vec<Object>>)]
    eval_metrics: Option<Vec<Value>>,
    #[serde(alias = "num_runs")]
    num_runs: Option<u32>,
    parallelism: Option<usize>,
}

/// The result of an evaluated case.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunEvalResult<'a> {
    app_name: &'a str,
    eval_set_file: String,
    /// The metrics and their scores, in pairs, for older clients.
    eval_metric_results: Vec<(EvalMetric, &'a MetricResult)>,
    #[serde(flatten)]
    result: &'a EvalCaseResult,
}

/// A metric without its score.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EvalMetric {
    metric_name: &'static str,
    threshold: f64,
}

impl From<&MetricResult> for EvalMetric {
    fn from(result: &MetricResult) -> Self {
        Self { metric_name: result.metric_name, threshold: result.threshold }
    }
}

impl<'a> RunEvalResult<'a> {
    fn new(app_name: &'a str, result: &'a EvalCaseResult) -> Self {
        Self {
            app_name,
            eval_set_file: format!("{}.evalset.json", result.eval_set_id),
            eval_metric_results: result.overall_eval_metric_results.iter().map(|score| (score.into(), score)).collect(),
            result,
        }
    }
}

/// Evaluates a set. The request waits for the result; if its client disconnects, the runs are cancelled.
async fn evaluate(
    state: &AppState,
    app: &str,
    set: String,
    body: RunBody,
) -> Result<(String, EvalSetResult), ApiError> {
    require_full(state)?;
    let app = state.app(app)?;
    let metrics = body.eval_metrics.unwrap_or_default();
    let metrics: Vec<Metric> = metrics.into_iter().map(Metric::from_value).collect::<Result<_, _>>()?;
    let request = EvalRequest {
        set_id: set,
        case_ids: body.eval_case_ids.filter(|ids| !ids.is_empty()).or(body.eval_ids).unwrap_or_default(),
        metrics: (!metrics.is_empty()).then_some(metrics),
        num_runs: body.num_runs,
        parallelism: body.parallelism,
    };
    let result = state.evaluations().run(&app, request).await?;
    Ok((app.name.clone(), result))
}

/// Evaluates a set, and returns the result.
#[utoipa::path(
    post,
    path = "/dev/apps/{app}/eval-sets/{set}/run",
    tag = "evaluation",
    request_body = Option<RunBody>,
    responses((status = 200, description = "The results", body = schemas::RunEvalResponse))
)]
async fn run(
    state: State<AppState>,
    params: Params<(String, String)>,
    body: RawJson,
) -> Result<axum::Json<Value>, ApiError> {
    let axum::Json(results) = run_older(state, params, body).await?;
    Ok(axum::Json(json!({"runEvalResults": results})))
}

async fn run_older(
    State(state): State<AppState>,
    Params((app, set)): Params<(String, String)>,
    body: RawJson,
) -> Result<axum::Json<Value>, ApiError> {
    let (app, result) = evaluate(&state, &app, set, body.parse_or_default()?).await?;
    let results: Vec<_> = result.eval_case_results.iter().map(|result| RunEvalResult::new(&app, result)).collect();
    serde_json::to_value(results).map(axum::Json).map_err(|_| ApiError::internal())
}

async fn result_ids(
    State(state): State<AppState>,
    Params(app): Params<String>,
) -> Result<axum::Json<Vec<String>>, ApiError> {
    Ok(axum::Json(state.evaluations().result_ids(&*state.app(&app)?).await?))
}

/// Returns the ids of the results of an app.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/eval-results",
    tag = "evaluation",
    responses((status = 200, description = "The ids", body = schemas::EvalResultIds))
)]
async fn result_list(
    State(state): State<AppState>,
    Params(app): Params<String>,
) -> Result<axum::Json<Value>, ApiError> {
    Ok(axum::Json(json!({"evalResultIds": state.evaluations().result_ids(&*state.app(&app)?).await?})))
}

/// Returns a result.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/eval-results/{result}",
    tag = "evaluation",
    responses((status = 200, description = "The result", body = schemas::EvalSetResult))
)]
async fn result(
    State(state): State<AppState>,
    Params((app, id)): Params<(String, String)>,
) -> Result<Response, ApiError> {
    let json = state.evaluations().result(&*state.app(&app)?, &id).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

async fn metrics(State(state): State<AppState>, Params(app): Params<String>) -> Result<axum::Json<Value>, ApiError> {
    state.app(&app)?;
    Ok(axum::Json(metric_infos()))
}

/// Returns the available metrics.
#[utoipa::path(
    get,
    path = "/dev/apps/{app}/metrics-info",
    tag = "evaluation",
    responses((status = 200, description = "The metrics", body = Object))
)]
async fn metrics_info(
    State(state): State<AppState>,
    Params(app): Params<String>,
) -> Result<axum::Json<Value>, ApiError> {
    state.app(&app)?;
    Ok(axum::Json(json!({"metricsInfo": metric_infos()})))
}

/// Checks that the configuration allows clients to change sets and to run evaluations, which call models many times.
fn require_full(state: &AppState) -> Result<(), ApiError> {
    if state.config().dev_ui() == DevUi::Full {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "EVALUATION_NOT_ALLOWED",
        "eval sets can only be changed and run with `server: { dev_ui: full }` in hatchery.yaml; or use `hatchery eval`",
    ))
}

impl From<EvalError> for ApiError {
    fn from(error: EvalError) -> Self {
        let status = match &error {
            EvalError::SetNotFound { .. } | EvalError::CaseNotFound { .. } | EvalError::ResultNotFound(_) => {
                StatusCode::NOT_FOUND
            }
            EvalError::SetExists(_) | EvalError::CaseExists { .. } => StatusCode::CONFLICT,
            EvalError::SetOfApp(_) => StatusCode::FORBIDDEN,
            EvalError::InvalidId { .. } | EvalError::InvalidRequest(_) | EvalError::InvalidCriteria { .. } => {
                StatusCode::BAD_REQUEST
            }
            EvalError::InvalidFile { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            EvalError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            EvalError::Busy(_) => return Self::busy(error.to_string()),
            EvalError::Store(_) | EvalError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        match error {
            EvalError::Store(error) => error.into(),
            EvalError::File(cause) => {
                tracing::error!(%cause, "the files of evaluations cannot be used");
                Self::internal()
            }
            error => Self::new(status, error.code(), error.to_string()),
        }
    }
}
