//! Credentials of the user.

use serde_json::Value;

use super::super::scope::Scope;
use crate::bindings::wit::types;
use crate::convert::read;
use crate::error::Error;

pub(crate) async fn get(config: String) -> Result<Option<String>, types::Error> {
    let scope = Scope::for_change()?;
    let config: Value = read(&config, "the configuration of a credential")?;
    if scope.call.function_call_id.is_none() {
        return Err(Error::new("BAD_INPUT", "a credential can only be requested in a tool call").into());
    }
    let mut mock = scope.mock.borrow_mut();
    if let Some(credential) = &mock.credential {
        return Ok(Some(credential.to_string()));
    }
    mock.requested_credential = Some(config);
    Ok(None)
}

pub(crate) async fn refuse(_config: String, credential: String) -> Result<(), types::Error> {
    let scope = Scope::for_change()?;
    let refused: Value = read(&credential, "the credential")?;
    let mut mock = scope.mock.borrow_mut();
    if mock.credential.as_ref() == Some(&refused) {
        mock.credential = None;
    }
    Ok(())
}
