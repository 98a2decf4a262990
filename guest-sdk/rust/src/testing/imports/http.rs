//! Outgoing HTTP requests: part of `wasi:http`, not of the contract.

use super::super::scope::Scope;
use super::super::{HttpRequest, HttpResponse};
use crate::error::Error;

pub(crate) fn exchange(request: HttpRequest) -> Result<HttpResponse, Error> {
    let scope = Scope::current()?;
    let (description, server) = {
        let mut mock = scope.mock.borrow_mut();
        mock.http_requests.push(request.clone());
        (format!("{} {}", request.method, request.url), mock.server.clone())
    };
    let nobody = || {
        let what = "add `.http(|request| Ok(HttpResponse::text(\"…\")))` to the test's host";
        Error::new("DENIED", format!("there is no response for {description}; {what}"))
    };
    server.ok_or_else(nobody)?(request)
}
