//! Artifacts.

use super::super::mock_state::check_artifact_name;
use super::super::scope::Scope;
use crate::bindings::wit::types;
use crate::content::{JsonMap, Part, PartData};
use crate::convert::read;
use crate::event::EventActions;

pub(crate) async fn save(name: String, part: types::Part) -> Result<u64, types::Error> {
    save_part(name, part, JsonMap::new())
}

pub(crate) async fn save_with(name: String, part: types::Part, custom_metadata: String) -> Result<u64, types::Error> {
    save_part(name, part, read(&custom_metadata, "the custom metadata")?)
}

fn save_part(name: String, part: types::Part, custom_metadata: JsonMap) -> Result<u64, types::Error> {
    let scope = Scope::for_change()?;
    check_artifact_name(&name)?;
    let part = Part::try_from(part)?;
    let mut mock = scope.mock.borrow_mut();
    let version = mock.save_artifact(name.clone(), part, custom_metadata);
    let saved = EventActions { artifact_delta: vec![(name, version)], ..EventActions::default() };
    super::super::mock_state::merge(&mut scope.call.actions.borrow_mut(), saved);
    Ok(version)
}

pub(crate) async fn load(name: String, version: Option<u64>) -> Result<Option<types::Part>, types::Error> {
    let scope = Scope::for_session()?;
    check_artifact_name(&name)?;
    let mock = scope.mock.borrow();
    let Some(versions) = mock.artifacts.get(&name) else { return Ok(None) };
    let part = match version {
        None => versions.last(),
        Some(version) => usize::try_from(version).ok().and_then(|version| versions.get(version)),
    };
    Ok(part.map(|saved| saved.part.clone().into()))
}

pub(crate) async fn get_version(
    name: String,
    version: Option<u64>,
) -> Result<Option<types::ArtifactVersion>, types::Error> {
    let scope = Scope::for_session()?;
    check_artifact_name(&name)?;
    let mock = scope.mock.borrow();
    let Some(versions) = mock.artifacts.get(&name) else { return Ok(None) };
    let version = version.unwrap_or(versions.len() as u64 - 1);
    let Some(saved) = usize::try_from(version).ok().and_then(|version| versions.get(version)) else { return Ok(None) };
    let (mime_type, size) = match &saved.part.data {
        PartData::InlineData(blob) => (Some(blob.mime_type.clone()), blob.data.len()),
        PartData::FileData(file) => (file.mime_type.clone(), 0),
        PartData::Text(text) => (None, text.len()),
        _ => (None, 0),
    };
    let custom_metadata = serde_json::to_string(&saved.custom_metadata).map_err(crate::error::Error::from)?;
    let (size, created) = (size as u64, Some(saved.created_micros));
    Ok(Some(types::ArtifactVersion { version, mime_type, size, created, custom_metadata }))
}

pub(crate) async fn list() -> Result<Vec<String>, types::Error> {
    Ok(Scope::for_session()?.mock.borrow().artifacts.keys().cloned().collect())
}

pub(crate) async fn versions(name: String) -> Result<Vec<u64>, types::Error> {
    let scope = Scope::for_session()?;
    check_artifact_name(&name)?;
    let versions = scope.mock.borrow().artifacts.get(&name).map_or(0, Vec::len);
    Ok((0..versions as u64).collect())
}

pub(crate) async fn delete(name: String) -> Result<(), types::Error> {
    let scope = Scope::for_change()?;
    check_artifact_name(&name)?;
    scope.mock.borrow_mut().artifacts.remove(&name);
    let deleted = EventActions { deleted_artifact_ids: vec![name], ..EventActions::default() };
    super::super::mock_state::merge(&mut scope.call.actions.borrow_mut(), deleted);
    Ok(())
}
