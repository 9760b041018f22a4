//! What servers ask the user in the middle of a run.

use serde::{Deserialize, Serialize};

/// A question that waits for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Question {
    /// Identifier.
    pub id: String,
    /// The run that waits for the answer.
    pub run_id: String,
    /// Whose run that is.
    pub client: String,
    /// Who asks.
    pub server: String,
    /// Its words.
    pub message: String,
    /// How to answer.
    pub way: QuestionWay,
    /// Since when it waits.
    pub asked_at: i64,
    /// When it is given up.
    pub expires_at: i64,
}

/// How a question is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum QuestionWay {
    /// By filling in fields, of which there may be none.
    Form {
        /// In their order.
        fields: Vec<QuestionField>,
    },
    /// On a web page, which is opened only if the user agrees.
    Page {
        /// Its address.
        url: String,
        /// The host of that address, which says whose page it is.
        host: String,
    },
}

/// One field of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct QuestionField {
    /// Its name in the answer.
    pub name: String,
    /// Its name for people.
    pub label: String,
    /// What the server says of it.
    pub about: Option<String>,
    /// There is no answer without it.
    pub required: bool,
    /// What goes into it.
    pub input: QuestionInput,
}

/// What goes into a field. Numbers travel as their text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum QuestionInput {
    /// Text.
    Text {
        /// What kind of text.
        format: Option<TextFormat>,
        /// The shortest.
        chars_min: u32,
        /// The longest.
        chars_max: u32,
        /// What it begins with.
        value: String,
    },
    /// A number.
    Number {
        /// Without a fraction.
        whole: bool,
        /// The smallest.
        min: Option<String>,
        /// The largest.
        max: Option<String>,
        /// What it begins with.
        value: String,
    },
    /// Yes or no.
    Flag {
        /// What it begins with.
        value: bool,
    },
    /// One of some.
    Choice {
        /// Which.
        choices: Vec<Choice>,
        /// What it begins with; `None`: nothing is chosen.
        value: Option<String>,
    },
    /// Some of some.
    Choices {
        /// Which.
        choices: Vec<Choice>,
        /// The fewest.
        count_min: u32,
        /// The most.
        count_max: u32,
        /// What it begins with.
        value: Vec<String>,
    },
}

/// One thing to choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Choice {
    /// As the answer has it.
    pub value: String,
    /// As people read it.
    pub label: String,
}

/// What kind of text a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum TextFormat {
    /// An address for mail.
    Email,
    /// An address in the web.
    Uri,
    /// `2026-11-30`
    Date,
    /// `2026-11-30T09:30:00Z`
    DateTime,
}

/// What the user says to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum QuestionAnswer {
    /// Yes; of a page, that it is to be opened.
    Accept {
        /// The fields by name, as the text of a JSON object.
        values: String,
    },
    /// No.
    Decline,
    /// Neither.
    Dismiss,
}
