//! Bodies of requests.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use hatchery_core::{Blob, CallContext, JsonMap, PartData};
use reqwest::header::HeaderValue;
use serde_json::Value;
use uuid::Uuid;

use super::{as_text, pair, query_pairs};
use crate::document::{Body, BodyArguments, BodyEncoding, Parameter};

type EncodedBody = (HeaderValue, Bytes);

/// Maximum number of files of one body.
const MAX_FILES: usize = 100;

/// Encodes the body of a call, which has at most `limit` bytes. `None` if none of its arguments is there, and it is
/// optional.
///
/// # Errors
/// The reason for the model.
pub(super) async fn encode(
    body: &Body,
    mut args: JsonMap,
    limit: usize,
    cx: &CallContext,
) -> Result<Option<EncodedBody>, String> {
    let value = match &body.arguments {
        BodyArguments::Whole(name) => args.shift_remove(name),
        BodyArguments::Properties { names, constants, is_required } => {
            args.retain(|name, _| names.contains(name));
            let is_sent = *is_required || !args.is_empty() || !constants.is_empty();
            is_sent.then(|| Value::Object(constants.clone().into_iter().chain(args).collect()))
        }
    };
    let Some(value) = value else { return Ok(None) };
    let media_type = || {
        let value = HeaderValue::from_str(&body.media_type);
        value.map_err(|_| "the API has a media type that is not valid".to_owned())
    };
    let (media_type, bytes) = match (&body.encoding, value) {
        (BodyEncoding::Json, value) => (media_type()?, value.to_string().into()),
        (BodyEncoding::Text, value) => (media_type()?, as_text(&value).into()),
        (BodyEncoding::Artifact, value) => {
            let file = Files::new(cx).load(&as_text(&value)).await?;
            let own = HeaderValue::from_str(&file.mime_type).ok().filter(|_| body.media_type.contains('*'));
            (own.map_or_else(media_type, Ok)?, file.data)
        }
        (BodyEncoding::Form(styled), Value::Object(fields)) => (media_type()?, form(&fields, styled).into()),
        (BodyEncoding::Multipart(files), Value::Object(fields)) => multipart(&fields, files, limit, cx).await?,
        (BodyEncoding::Form(_) | BodyEncoding::Multipart(_), _) => {
            return Err("the body is not an object of fields".into());
        }
    };
    if bytes.len() > limit {
        return Err(too_large(limit));
    }
    Ok(Some((media_type, bytes)))
}

fn too_large(limit: usize) -> String {
    format!("the request is larger than {limit} bytes, so it was not sent; send less, or fewer files")
}

/// Returns the fields of a form. Arrays without a style are several fields of the same name.
fn form(fields: &JsonMap, styled: &[Parameter]) -> String {
    let pairs = fields.iter().flat_map(|(name, value)| {
        let style = styled.iter().find(|field| field.name == *name);
        match (style, value) {
            (_, Value::Null) => Vec::new(),
            (Some(field), value) => query_pairs(field, value),
            (None, Value::Array(items)) => items.iter().map(|item| pair(name, &as_text(item))).collect(),
            (None, value) => vec![pair(name, &as_text(value))],
        }
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns the fields and files of a form as `multipart/form-data`.
async fn multipart(
    fields: &JsonMap,
    files: &BTreeSet<String>,
    limit: usize,
    cx: &CallContext,
) -> Result<EncodedBody, String> {
    let boundary = Uuid::new_v4().simple().to_string();
    let mut body = LimitedBody { bytes: BytesMut::new(), limit };
    let mut artifacts = Files::new(cx);
    for (name, value) in fields {
        let items = match value {
            Value::Null => &[],
            Value::Array(items) => items.as_slice(),
            value => std::slice::from_ref(value),
        };
        for item in items {
            let header = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"", escape_parameter(name));
            body.append(header.as_bytes())?;
            if files.contains(name) {
                let artifact = as_text(item);
                let file = artifacts.load(&artifact).await?;
                let file_name = artifact.rsplit(['/', ':']).next().unwrap_or_default();
                let (file_name, mime_type) = (escape_parameter(file_name), escape_parameter(&file.mime_type));
                let rest = format!("; filename=\"{file_name}\"\r\ncontent-type: {mime_type}\r\n\r\n");
                body.append(rest.as_bytes())?;
                body.append(&file.data)?;
            } else {
                let is_json = item.is_object() || item.is_array();
                let head = if is_json { "\r\ncontent-type: application/json\r\n\r\n" } else { "\r\n\r\n" };
                body.append(head.as_bytes())?;
                body.append(as_text(item).as_bytes())?;
            }
            body.append(b"\r\n")?;
        }
    }
    body.append(format!("--{boundary}--\r\n").as_bytes())?;
    let media_type = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"));
    Ok((media_type.map_err(|error| error.to_string())?, body.bytes.freeze()))
}

/// Escapes quotes and line breaks in a header parameter of `multipart/form-data`, as browsers do.
fn escape_parameter(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// A body that does not grow beyond its limit.
struct LimitedBody {
    bytes: BytesMut,
    limit: usize,
}

impl LimitedBody {
    fn append(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() > self.limit.saturating_sub(self.bytes.len()) {
            return Err(too_large(self.limit));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// The files of one body. Each artifact is read once.
struct Files<'a> {
    cx: &'a CallContext,
    files: BTreeMap<String, Blob>,
    count: usize,
}

impl<'a> Files<'a> {
    fn new(cx: &'a CallContext) -> Self {
        Self { cx, files: BTreeMap::new(), count: 0 }
    }

    async fn load(&mut self, name: &str) -> Result<Blob, String> {
        self.count += 1;
        if self.count > MAX_FILES {
            return Err(format!("the request has more than {MAX_FILES} files, so it was not sent; send fewer"));
        }
        if let Some(file) = self.files.get(name) {
            return Ok(file.clone());
        }
        let file = load(name, self.cx).await?;
        self.files.insert(name.to_owned(), file.clone());
        Ok(file)
    }
}

/// Returns the newest version of an artifact.
async fn load(name: &str, cx: &CallContext) -> Result<Blob, String> {
    let part =
        cx.load_artifact(name, None).await.map_err(|error| format!("the artifact `{name}` cannot be read: {error}"))?;
    match part.map(|part| part.data) {
        Some(PartData::InlineData(blob)) => Ok(blob),
        Some(PartData::Text(text)) => {
            Ok(Blob { mime_type: "text/plain".into(), data: text.as_bytes().to_vec().into(), display_name: None })
        }
        Some(_) => Err(format!("the artifact `{name}` is not a file")),
        None => {
            let known = cx.list_artifacts().await.unwrap_or_default();
            let known: Vec<_> = known.iter().take(20).map(String::as_str).collect();
            let known =
                if known.is_empty() { "there are none".into() } else { format!("there are {}", known.join(", ")) };
            Err(format!("there is no artifact `{name}`; {known}"))
        }
    }
}
