//! The HTTP service: the processing of every request before and after its route.
//!
//! One function does it. Layers of the router would wrap every route in one boxed service each, which cost a third of
//! the instructions of a request.

use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::Request;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use hatchery::{BasePath, ServerConfig};
use tower::Service;

use crate::auth::{Admission, Credentials, Principal, RequestHead};
use crate::body::{BodyBudget, BodyMemory, hold_until_sent};
use crate::cors::{Cors, is_preflight};
use crate::error::ApiError;
use crate::guard::{self, Guard};
use crate::observe::RequestLog;
use crate::state::AppState;
use crate::{base_path, headers, routes};

/// The routes with the checks and limits of all requests.
pub(crate) struct HttpService {
    router: Router,
    rules: Arc<ArcSwap<OriginRules>>,
    body_budget: BodyBudget,
    /// `None` if the routes are at the root.
    base_path: Option<BasePath>,
    /// `None` without authentication.
    state: Option<AppState>,
}

/// The hosts and origins of requests, which are replaced with the configuration.
pub(crate) struct OriginRules {
    guard: Guard,
    cors: Cors,
}

impl OriginRules {
    /// `is_loopback` is true if the server listens on a loopback address.
    pub(crate) fn new(is_loopback: bool, config: &ServerConfig) -> Self {
        Self { guard: Guard::new(is_loopback, &config.allowed_hosts), cors: Cors::new(&config.cors) }
    }
}

impl HttpService {
    /// Returns the service of a server. `is_loopback` is true if it listens on a loopback address.
    pub(crate) fn new(state: AppState, is_loopback: bool) -> Self {
        let rules = state.set_loopback(is_loopback);
        let (body_budget, base_path) = (state.body_budget().clone(), state.config().base_path.clone());
        let router = routes::all(base_path.as_ref()).with_state(state.clone());
        Self { router, rules, body_budget, base_path, state: Some(state) }
    }

    /// Returns a service of these routes, without authentication.
    #[cfg(test)]
    pub(crate) fn from_router(router: Router, guard: Guard, body_budget: BodyBudget) -> Self {
        let rules = Arc::new(ArcSwap::from_pointee(OriginRules { guard, cors: Cors::new(&[]) }));
        Self { router, rules, body_budget, base_path: None, state: None }
    }

    /// Answers a request. It is logged, and a panic is a response with status 500.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let log = RequestLog::begin(&request);
        let entered = match &self.base_path {
            Some(base) => base_path::enter(base, request),
            None => Ok(request),
        };
        let mut response = match entered {
            Ok(request) => {
                // `Instrument` would enter the span once more, to drop the future.
                let mut routed = pin!(self.route(request));
                poll_fn(|cx| log.span().in_scope(|| routed.as_mut().poll(cx))).await
            }
            Err(response) => *response,
        };
        log.end(&mut response);
        headers::add_missing(response.headers_mut());
        response
    }

    /// Answers a request unless it comes from a page that may not send it.
    async fn route(&self, request: Request) -> Response {
        let rules = self.rules.load_full();
        let OriginRules { guard, cors } = &*rules;
        let headers = request.headers();
        if let Err(error) = guard::check_host_count(request.version(), request.uri(), headers) {
            return error.into_response();
        }
        let is_own = guard::is_own_origin(request.uri(), headers);
        let rule = if is_own { None } else { cors.rule(request.uri().path(), headers) };
        let mut response = match (guard.check(request.method(), request.uri(), headers, rule.is_some()), rule) {
            (Err(error), _) => error.into_response(),
            (Ok(()), None) => self.dispatch(request, true).await,
            (Ok(()), Some(rule)) => {
                // A rule is for an origin.
                let origin = headers.get(header::ORIGIN).cloned();
                let mut response = if is_preflight(request.method(), headers) {
                    rule.answer_preflight(headers).into_response()
                } else {
                    match rule.check(request.method()) {
                        // Browsers send the cookies of a neighbouring port unasked.
                        Ok(()) => self.dispatch(request, rule.allows_credentials()).await,
                        Err(error) => error.into_response(),
                    }
                };
                if let Some(origin) = origin {
                    rule.share(&origin, response.headers_mut());
                }
                response
            }
        };
        cors.vary(response.headers_mut());
        response
    }

    /// Passes a request to its route if its sender may use it.
    async fn dispatch(&self, mut request: Request, accepts_login: bool) -> Response {
        let auth = self.state.as_ref().and_then(AppState::auth);
        let admission = match &auth {
            None => Some(Admission { principal: Principal::Anybody, permit: None }),
            Some(auth) => match auth.admit(RequestHead::new(&request, accepts_login)).await {
                Ok(admission) => admission,
                Err(refusal) => return *refusal,
            },
        };
        let mut permit = None;
        if let Some(admission) = admission {
            if auth.is_some() {
                tracing::Span::current().record("client", admission.principal.name());
            }
            request.extensions_mut().insert(admission.principal);
            permit = admission.permit;
        }
        if auth.is_some() && request.headers().contains_key(header::UPGRADE) {
            // Messages on the connection have no headers.
            let credentials = Credentials::from_request(&request, accepts_login);
            request.extensions_mut().insert(credentials);
            if let Some(permit) = &permit {
                request.extensions_mut().insert(permit.clone());
            }
        }
        let is_read = *request.method() == Method::GET;
        let memory = BodyMemory::new(self.body_budget.clone());
        request.extensions_mut().insert(memory.clone());
        let mut router = self.router.clone();
        match AssertUnwindSafe(async { router.call(request).await }).catch_unwind().await {
            Ok(Ok(response)) => {
                let response = match memory.count_response(&response) {
                    // The effects of others would be repeated with the request.
                    Err(error) if is_read => error.into_response(),
                    Ok(()) | Err(_) => response,
                };
                let response = memory.hold_until_sent(response);
                match permit {
                    None => response,
                    Some(permit) => hold_until_sent(response, permit),
                }
            }
            Err(panic) => panic_response(&*panic),
        }
    }
}

/// Returns the response for a panic in a handler.
fn panic_response(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("no message"), "a handler panicked");
    ApiError::internal().into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{HeaderMap, StatusCode};
    use axum::routing::get;
    use hatchery::ByteSize;

    use super::*;

    fn service(router: Router) -> HttpService {
        HttpService::from_router(router, Guard::new(true, &[]), BodyBudget::new(ByteSize(1 << 20)))
    }

    async fn answer(service: &HttpService, host: &str) -> (StatusCode, HeaderMap, String) {
        let request = Request::get("/").header(header::HOST, host).body(Body::empty()).unwrap();
        let response = service.answer(request).await;
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_panic_is_a_response_with_the_headers_of_all_responses() {
        async fn fail() -> &'static str {
            panic!("secret")
        }
        let service = service(Router::new().route("/", get(fail)));
        let (status, headers, body) = answer(&service, "localhost").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!body.contains("secret"), "{body}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert!(headers.contains_key("x-request-id"));
    }

    #[tokio::test]
    async fn a_refused_request_reaches_no_route_and_has_the_headers_of_all_responses() {
        let service = service(Router::new().route("/", get(|| async { "served" })));
        assert_eq!(answer(&service, "localhost").await.2, "served");
        let (status, headers, body) = answer(&service, "foreign.example").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert!(headers.contains_key("x-request-id"));
    }
}
