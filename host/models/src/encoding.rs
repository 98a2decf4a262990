//! Bytes as base64 in a request, encoded while it is written.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

pub(crate) struct Base64<'a>(pub(crate) &'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

/// A URL, or bytes as a data URI.
pub(crate) enum DataUrl<'a> {
    Address(&'a str),
    Data(&'a str, &'a [u8]),
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Address(address) => serializer.serialize_str(address),
            Self::Data(media_type, bytes) => serializer
                .collect_str(&format_args!("data:{media_type};base64,{}", Base64Display::new(bytes, &STANDARD))),
        }
    }
}
