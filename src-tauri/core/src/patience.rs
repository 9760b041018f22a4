//! How long a client waits for one call before it gives it up: what is known of each by its name,
//! and what it has taught us by giving up.
//!
//! A client does not say how long it will wait, and our own limits cannot change it. Lessons are
//! kept in a file, so that a client teaches us once; without the file they are learned again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::atomic;

/// Clients that give a call up after a fixed time, by the beginning of the name they greet with. The
/// time is the shortest of any of their builds. Those that wait for as long as their user does, or of
/// which nobody knows, are not in it.
const KNOWN: &[(&str, Duration)] = &[
    // Claude Desktop: builds with one minute and with four are about.
    ("claude-ai", Duration::from_mins(1)),
    ("codex-mcp-client", Duration::from_mins(1)),
    ("github-copilot", Duration::from_mins(1)),
    ("Cline", Duration::from_mins(1)),
    ("Roo Code", Duration::from_mins(1)),
    ("Kilo Code", Duration::from_mins(1)),
    ("Zed", Duration::from_mins(1)),
    ("goose", Duration::from_mins(5)),
    ("gemini-cli", Duration::from_mins(10)),
];

/// Times that programs choose. A call that was cancelled right then was not cancelled by a person.
const ROUND_SECONDS: [u64; 10] = [10, 15, 20, 30, 45, 60, 90, 120, 240, 300];

/// How far from such a time counts as right then: a timer fires late, not early.
const LATE_BY: Duration = Duration::from_millis(1_500);

/// Shorter lessons are not believed: no answer could come in time.
const LESSON_MIN: Duration = Duration::from_secs(1);

/// Clients whose lessons are kept.
const LESSONS_MAX: usize = 64;

/// A larger file is not ours.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Longer names are not remembered.
const NAME_BYTES_MAX: usize = 200;

/// What is known of clients.
#[derive(Debug)]
pub(crate) struct Patience {
    file: PathBuf,
    /// Milliseconds by name; `None` until the file was read.
    lessons: Mutex<Option<BTreeMap<String, u64>>>,
    /// Held while the file is written, so that the newest lessons are the last.
    writing: Mutex<()>,
}

impl Patience {
    /// With the lessons in `file`.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self {
            file,
            lessons: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// How long a call of `client` may take to be answered; `None`: nobody knows of a limit. It is a
    /// little shorter than what the client waits, for the way back.
    pub(crate) fn of(&self, client: &str) -> Option<Duration> {
        let learned = self.with_lessons(|lessons| lessons.get(client).copied());
        let known = || {
            let found = KNOWN.iter().find(|(name, _)| client.starts_with(name));
            found.map(|(_, limit)| *limit)
        };
        let limit = learned.map(Duration::from_millis).or_else(known)?;
        let way_back = (limit / 10).clamp(Duration::from_millis(500), Duration::from_secs(20));
        Some(limit.saturating_sub(way_back))
    }

    /// `client` cancelled a call that had taken so long, for the reason it gave: if that was its
    /// clock and not its user, it counts from now on, and true is given, for [`Patience::keep`].
    pub(crate) fn cancelled(&self, client: &str, after: Duration, reason: Option<&str>) -> bool {
        let Some(limit) = limit_behind(after, reason) else {
            return false;
        };
        if client.is_empty() || client.len() > NAME_BYTES_MAX || limit < LESSON_MIN {
            return false;
        }
        self.with_lessons(|lessons| {
            if lessons.len() >= LESSONS_MAX && !lessons.contains_key(client) {
                lessons.pop_first();
            }
            lessons.insert(client.to_owned(), limit.as_millis() as u64);
        });
        tracing::info!(
            "{client} gives a call up after {} s; longer runs will be answered before",
            limit.as_secs_f32()
        );
        true
    }

    /// Writes what was learned to its file, so it may block for a moment.
    pub(crate) fn keep(&self) {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let text = self.with_lessons(|lessons| serde_json::to_string_pretty(lessons));
        if let Ok(text) = text
            && let Err(error) = write(&self.file, &text)
        {
            tracing::debug!("cannot keep how long clients wait: {error}");
        }
    }

    fn with_lessons<T>(&self, look: impl FnOnce(&mut BTreeMap<String, u64>) -> T) -> T {
        let mut lessons = self.lessons.lock().unwrap_or_else(PoisonError::into_inner);
        look(lessons.get_or_insert_with(|| read(&self.file)))
    }
}

/// The limit that ended a call after such a time, if one did.
fn limit_behind(after: Duration, reason: Option<&str>) -> Option<Duration> {
    let reason = reason.unwrap_or_default().to_lowercase();
    let round = ROUND_SECONDS
        .iter()
        .map(|seconds| Duration::from_secs(*seconds))
        .find(|limit| after >= *limit && after < *limit + LATE_BY);
    let says_so = ["timed out", "timeout", "time out"]
        .iter()
        .any(|words| reason.contains(words));
    round.or(says_so.then_some(after))
}

fn read(file: &Path) -> BTreeMap<String, u64> {
    let small = std::fs::metadata(file).is_ok_and(|found| found.len() <= FILE_BYTES_MAX);
    let text = if small {
        std::fs::read_to_string(file).unwrap_or_default()
    } else {
        String::new()
    };
    let mut lessons: BTreeMap<String, u64> = serde_json::from_str(&text).unwrap_or_default();
    lessons.retain(|name, ms| {
        name.len() <= NAME_BYTES_MAX && u128::from(*ms) >= LESSON_MIN.as_millis()
    });
    while lessons.len() > LESSONS_MAX {
        lessons.pop_last();
    }
    lessons
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        atomic::create_folder(folder)?;
    }
    atomic::write(file, text.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fresh() -> (tempfile::TempDir, Patience) {
        let dir = tempfile::tempdir().unwrap();
        let patience = Patience::new(dir.path().join("c/patience.json"));
        (dir, patience)
    }

    #[test]
    fn a_known_client_is_answered_in_time_and_an_unknown_one_at_the_end() {
        let (_dir, patience) = fresh();
        assert_eq!(patience.of("claude-ai"), Some(seconds(54)));
        assert_eq!(patience.of("goose"), Some(seconds(280)));
        assert_eq!(patience.of("someone"), None);
    }

    #[test]
    fn a_clock_teaches_and_a_person_does_not() {
        let (_dir, patience) = fresh();
        patience.cancelled(
            "c",
            Duration::from_millis(23_456),
            Some("user pressed stop"),
        );
        assert!(!patience.cancelled("c", Duration::from_millis(59_900), None));
        assert_eq!(patience.of("c"), None);
        patience.cancelled("c", Duration::from_millis(60_200), None);
        assert_eq!(patience.of("c"), Some(seconds(54)));
        let reason = "McpError: MCP error -32001: Request timed out";
        patience.cancelled("c", seconds(5), Some(reason));
        assert_eq!(patience.of("c"), Some(Duration::from_millis(4_500)));
        patience.cancelled("claude-ai", seconds(240), None);
        assert_eq!(patience.of("claude-ai"), Some(seconds(220)));
    }

    #[test]
    fn a_lesson_outlives_us_and_a_strange_file_teaches_nothing() {
        let (dir, patience) = fresh();
        assert!(patience.cancelled("c", seconds(30), None));
        patience.keep();
        let file = dir.path().join("c/patience.json");
        assert_eq!(Patience::new(file.clone()).of("c"), Some(seconds(27)));
        for text in ["", "[1]", "{\"c\": -5}", "{\"c\": 3}"] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(Patience::new(file.clone()).of("c"), None, "{text}");
        }
    }

    #[test]
    fn lessons_are_bounded() {
        let (_dir, patience) = fresh();
        for number in 0..2 * LESSONS_MAX {
            patience.cancelled(&format!("c{number:04}"), seconds(30), None);
        }
        patience.cancelled(&"n".repeat(NAME_BYTES_MAX + 1), seconds(30), None);
        assert_eq!(patience.with_lessons(|lessons| lessons.len()), LESSONS_MAX);
        let last = format!("c{:04}", 2 * LESSONS_MAX - 1);
        assert!(patience.of(&last).is_some());
    }
}
