//! The document of one key as it is on disk. Borrows from the text it was read from, so that
//! listing copies no value.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Info, Record};

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Document<'a> {
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) value: &'a RawValue,
    #[serde(borrow, default)]
    pub(super) metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) created_at: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) updated_at: Cow<'a, str>,
    pub(super) version: u64,
    #[serde(borrow, default)]
    pub(super) writer: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<Cow<'a, str>>,
}

impl<'a> Document<'a> {
    /// Parse the text of a file; the error is what is wrong with it.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("it is not a memory document: {error}"))
    }

    /// The text of the file: one line per field, for people who look.
    pub(super) fn print(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        text.push(b'\n');
        Ok(text)
    }

    pub(super) fn info(&self) -> Info {
        Info {
            key: self.key.clone().into_owned(),
            metadata: self.metadata.map(ToOwned::to_owned),
            created_at: self.created_at.clone().into_owned(),
            updated_at: self.updated_at.clone().into_owned(),
            version: self.version,
            writer: self.writer.clone().map(Cow::into_owned),
            session: self.session.clone().map(Cow::into_owned),
            value_bytes: self.value.get().len(),
        }
    }

    pub(super) fn record(&self) -> Record {
        Record {
            value: self.value.to_owned(),
            info: self.info(),
        }
    }
}
