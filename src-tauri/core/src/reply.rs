//! What the model reads of a run: the text and the fields of the reply, each within its cap.
//!
//! Pure. Knows what a run gave and nothing of how; redaction has happened before. Text and fields
//! tell the same facts, except that the number of calls, which the code's author knows, and the kind
//! of sandbox, which differs little, are fields only: a line of ours behind what the code printed
//! would spoil it for whoever parses it; and text is byte-faithful: where it is not cut, a stream stands in it as it
//! was printed, line ends and control characters included (JSON escapes those on the wire).

mod cut;
mod structured;

use std::sync::Arc;

use runbridge_sandbox::Image;
use serde_json::{Map, Value};

use crate::output::Captured;
use crate::sandboxes::SandboxFacts;
use crate::toon;
use cut::Piece;

/// How a run ended, as its reply says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The code ran to its end.
    Success,
    /// The code raised, or the sandbox failed.
    Error,
    /// The wall-clock limit came first.
    Timeout,
    /// The client cancelled.
    Cancelled,
    /// The memory limit was reached.
    OutOfMemory,
    /// The arguments of the call were wrong; nothing ran.
    ValidationError,
    /// It has not ended: its client would not have waited any longer.
    Running,
}

impl Status {
    /// The word in the reply and in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::OutOfMemory => "out_of_memory",
            Self::ValidationError => "validation_error",
            Self::Running => "running",
        }
    }
}

/// How the text of a reply is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputMode {
    /// As a terminal and a notebook would show it.
    #[default]
    Text,
    /// The fields in a fenced `toon` block.
    Toon,
    /// The fields in a fenced `json` block.
    Json,
}

/// What went wrong in the code or around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFacts {
    /// `ValueError`, or a word of ours such as `sandbox_unavailable`.
    pub r#type: String,
    /// What it says.
    pub message: String,
    /// The user's frames with their lines, and the exception last; empty if there is none.
    pub traceback: String,
}

/// Everything a reply is made from.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// As `runtime.output` takes it.
    pub run_id: String,
    /// How it ended.
    pub status: Status,
    /// Argument of `SystemExit` or the status of a process that died.
    pub exit_code: Option<i64>,
    /// What it printed.
    pub stdout: Captured,
    /// What it printed to stderr.
    pub stderr: Captured,
    /// `repr` of the last expression.
    pub result: Option<String>,
    /// The exception, or what failed.
    pub error: Option<ErrorFacts>,
    /// What it showed.
    pub images: Vec<Image>,
    /// The servers it called.
    pub servers: Vec<String>,
    /// How many tool calls it made.
    pub calls: u64,
    /// Its wall-clock limit; shown when that ended it.
    pub timeout_seconds: u64,
    /// The interpreter is gone, and its variables with it.
    pub variables_lost: bool,
    /// Remarks on the code, such as a coroutine that nobody awaited.
    pub notes: Vec<String>,
    /// Remarks on the sandbox, such as a limit that is not enforced.
    pub warnings: Vec<String>,
    /// Where it ran, if it did.
    pub sandbox: Option<Arc<SandboxFacts>>,
}

impl RunFacts {
    /// A run that ended with `status` and gave nothing yet.
    pub fn new(run_id: impl Into<String>, status: Status) -> Self {
        Self {
            run_id: run_id.into(),
            status,
            exit_code: None,
            stdout: Captured::default(),
            stderr: Captured::default(),
            result: None,
            error: None,
            images: Vec::new(),
            servers: Vec::new(),
            calls: 0,
            timeout_seconds: 0,
            variables_lost: false,
            notes: Vec::new(),
            warnings: Vec::new(),
            sandbox: None,
        }
    }
}

/// The bounds of one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Characters of the text, and of the fields as JSON. Less than [`CHARS_MIN`] counts as that.
    pub chars_max: usize,
    /// Bytes of all images together, before base64. They are not characters to a model, which pays
    /// for them by their size in pixels, so they have a bound of their own.
    pub image_bytes_max: usize,
}

/// Below this there is no room for the facts that every reply has.
pub const CHARS_MIN: usize = 2_000;

impl Default for ReplyLimits {
    fn default() -> Self {
        Self {
            chars_max: 20_000,
            image_bytes_max: 768 * 1024,
        }
    }
}

/// A reply, ready to be sent.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The first content item.
    pub text: String,
    /// The same facts as fields.
    pub structured: Map<String, Value>,
    /// Further content items.
    pub images: Vec<Image>,
    /// Whether the call counts as failed.
    pub is_error: bool,
    /// What the uncut text has between stdout and stderr; with `after`, what
    /// [`ConnectionOutputs::seal`](crate::output::ConnectionOutputs::seal) needs to give any part of it.
    pub between: String,
    /// What the uncut text has behind stderr.
    pub after: String,
}

/// Make the reply of a run.
pub fn build(mut facts: RunFacts, mode: OutputMode, limits: ReplyLimits) -> Reply {
    let chars_max = limits.chars_max.max(CHARS_MIN);
    let images = take_images(&mut facts, limits.image_bytes_max);
    let whole = WholeText::of(&facts);
    let text = whole.cut(&facts, chars_max);
    let (text, structured) = match mode {
        OutputMode::Text => (text, structured::fields(&facts, &whole, chars_max)),
        OutputMode::Json => json_block(&facts, &whole, chars_max),
        OutputMode::Toon => toon_block(&facts, &whole, chars_max),
    };
    Reply {
        text,
        structured,
        images,
        is_error: !matches!(facts.status, Status::Success | Status::Running),
        between: whole.between,
        after: whole.after,
    }
}

/// One sentence on how the run ended.
pub fn summary(facts: &RunFacts) -> String {
    let lost = if facts.variables_lost {
        "; the interpreter was ended and its variables are gone"
    } else {
        ""
    };
    match facts.status {
        Status::Success if is_silent(facts) => "success, no output".to_owned(),
        Status::Success => "success".to_owned(),
        Status::Error | Status::ValidationError => match (&facts.error, facts.exit_code) {
            (Some(error), _) => {
                let (name, first) = (
                    &error.r#type,
                    error.message.lines().next().unwrap_or_default(),
                );
                let colon = if name.is_empty() || first.is_empty() {
                    ""
                } else {
                    ": "
                };
                format!(
                    "{}{lost}",
                    cut::shortened(&format!("{name}{colon}{first}"), 200)
                )
            }
            (None, Some(code)) => format!("exited with code {code}{lost}"),
            (None, None) => format!("failed{lost}"),
        },
        Status::Timeout => format!(
            "timed out after {} s{}",
            facts.timeout_seconds,
            kept_or(lost)
        ),
        Status::Cancelled => format!("ended by the client{}", kept_or(lost)),
        Status::OutOfMemory => format!("the memory limit was reached{}", kept_or(lost)),
        Status::Running => format!(
            "the run goes on; call run_python with the code runtime.result('{}') to wait for it and \
             get its reply",
            facts.run_id
        ),
    }
}

fn kept_or(lost: &str) -> &str {
    if lost.is_empty() {
        "; variables are kept"
    } else {
        lost
    }
}

fn is_silent(facts: &RunFacts) -> bool {
    facts.stdout.head.is_empty()
        && facts.stderr.head.is_empty()
        && facts.result.is_none()
        && facts.images.is_empty()
        && facts.notes.is_empty()
        && facts.warnings.is_empty()
}

/// The images that fit, in order; each other one becomes a note.
fn take_images(facts: &mut RunFacts, bytes_max: usize) -> Vec<Image> {
    let mut room = bytes_max;
    let mut taken = Vec::new();
    for (number, image) in std::mem::take(&mut facts.images).into_iter().enumerate() {
        if let Some(rest) = room.checked_sub(image.data.len()) {
            room = rest;
            taken.push(image);
        } else {
            facts.notes.push(format!(
                "image {} ({}, {} bytes) was left out: the images of one reply hold at most {} bytes; \
                 show it smaller, for example with a lower dpi",
                number + 1,
                cut::shortened(&image.mime_type, 50),
                cut::grouped(image.data.len() as u64),
                cut::grouped(bytes_max as u64),
            ));
        }
    }
    // Whether the run is silent is asked later; the images are not lost, only moved.
    facts.images.clone_from(&taken);
    taken
}

/// The uncut text: stdout, `between`, stderr, `after`.
struct WholeText {
    between: String,
    after: String,
    /// Where the result begins in `after`, in characters.
    result_from: u64,
    /// Where the error begins and ends in `after`, in characters.
    error_from: u64,
    error_to: u64,
}

impl WholeText {
    fn of(facts: &RunFacts) -> Self {
        let open_line = |captured: &Captured| {
            let end = if captured.tail.is_empty() {
                &captured.head
            } else {
                &captured.tail
            };
            !end.is_empty() && !end.ends_with('\n')
        };
        let mut between = String::new();
        let mut line_is_open = open_line(&facts.stdout);
        if !facts.stderr.head.is_empty() {
            between = format!("{}stderr:\n", if line_is_open { "\n" } else { "" });
            line_is_open = open_line(&facts.stderr);
        }
        let mut after = After {
            text: String::new(),
            chars: 0,
            line_is_open,
        };
        let result_from = after.line(facts.result.as_deref());
        for note in &facts.notes {
            after.line(Some(&format!("note: {note}")));
        }
        for warning in &facts.warnings {
            after.line(Some(&format!("warning: {warning}")));
        }
        let error = facts.error.as_ref().map(error_text);
        let error_from = after.line(error.as_deref());
        let error_to = after.chars;
        if let Some(code) = facts.exit_code.filter(|code| *code != 0) {
            after.line(Some(&format!("exit code: {code}")));
        }
        if facts.status != Status::Success {
            after.line(Some(&status_line(facts)));
        } else if is_silent(facts) {
            after.line(Some(&format!("({})", summary(facts))));
        }
        Self {
            between,
            after: after.text,
            result_from,
            error_from,
            error_to,
        }
    }

    fn stderr_from(&self, facts: &RunFacts) -> u64 {
        cut::chars_of(&facts.stdout) + self.between.chars().count() as u64
    }

    fn after_from(&self, facts: &RunFacts) -> u64 {
        self.stderr_from(facts) + cut::chars_of(&facts.stderr)
    }

    fn cut(&self, facts: &RunFacts, chars_max: usize) -> String {
        let pieces = [
            Piece::Captured(&facts.stdout),
            Piece::Text(&self.between),
            Piece::Captured(&facts.stderr),
            Piece::Text(&self.after),
        ];
        cut::cut_text(&pieces, chars_max, &facts.run_id)
    }
}

/// The part of the text behind stderr while it is written: every entry on lines of its own.
struct After {
    text: String,
    chars: u64,
    line_is_open: bool,
}

impl After {
    /// Add `entry`, if there is one, and tell at which character it begins.
    fn line(&mut self, entry: Option<&str>) -> u64 {
        let Some(entry) = entry else {
            return self.chars;
        };
        if self.line_is_open {
            self.text.push('\n');
            self.chars += 1;
        }
        let from = self.chars;
        self.text.push_str(entry);
        self.chars += entry.chars().count() as u64;
        self.line_is_open = !entry.ends_with('\n');
        from
    }
}

fn error_text(error: &ErrorFacts) -> String {
    let colon = if error.r#type.is_empty() || error.message.is_empty() {
        ""
    } else {
        ": "
    };
    let sentence = format!("{}{colon}{}", error.r#type, error.message);
    match error.traceback.trim_end_matches('\n') {
        "" => sentence,
        traceback if traceback.contains(&error.message) && traceback.contains(&error.r#type) => {
            traceback.to_owned()
        }
        traceback => format!("{traceback}\n{sentence}"),
    }
}

fn status_line(facts: &RunFacts) -> String {
    let status = facts.status.as_str();
    match facts.status {
        // The error stands right above.
        Status::Error | Status::ValidationError
            if facts.error.is_some() && !facts.variables_lost =>
        {
            format!("status: {status}")
        }
        Status::Error | Status::ValidationError if facts.error.is_some() => {
            format!("status: {status} (the interpreter was ended and its variables are gone)")
        }
        Status::Error
        | Status::ValidationError
        | Status::Timeout
        | Status::Cancelled
        | Status::OutOfMemory
        | Status::Running
        | Status::Success => format!("status: {status} ({})", summary(facts)),
    }
}

fn json_block(
    facts: &RunFacts,
    whole: &WholeText,
    chars_max: usize,
) -> (String, Map<String, Value>) {
    const FENCE: (&str, &str) = ("```json\n", "\n```");
    let fields = structured::fields(facts, whole, chars_max - FENCE.0.len() - FENCE.1.len());
    let json = Value::Object(fields.clone()).to_string();
    (format!("{}{json}{}", FENCE.0, FENCE.1), fields)
}

fn toon_block(
    facts: &RunFacts,
    whole: &WholeText,
    chars_max: usize,
) -> (String, Map<String, Value>) {
    // TOON is usually the shorter of the two; where quotes make it longer, the fields get less room.
    let mut fields_chars_max = chars_max - 16;
    while fields_chars_max > CHARS_MIN / 2 {
        let fields = structured::fields(facts, whole, fields_chars_max);
        let Ok(block) = toon::encode(&Value::Object(fields.clone())) else {
            break;
        };
        let text = format!("```toon\n{block}\n```");
        if text.chars().count() <= chars_max {
            return (text, fields);
        }
        fields_chars_max -= fields_chars_max / 8;
    }
    json_block(facts, whole, chars_max)
}

#[cfg(test)]
mod tests;
