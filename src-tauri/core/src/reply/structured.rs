//! The facts of a reply as fields, within a number of characters of JSON.
//!
//! Short facts are always whole. The long ones (streams, result, error) share what room is left:
//! whichever needs less than an equal share leaves the rest to the others.

use serde_json::{Map, Value, json};

use super::{RunFacts, Status, WholeText, cut, summary};
use crate::output::Captured;

/// Longest entry of a list, and longest name of an exception.
const ENTRY_CHARS_MAX: usize = 300;
const TYPE_CHARS_MAX: usize = 100;

/// A field that may have to be cut.
struct Long<'a> {
    /// Its name; two names for one inside `error`.
    path: (&'static str, Option<&'static str>),
    text: CapturedRef<'a>,
    /// Where in the whole text the part between head and tail can be read.
    position: Position,
    cost: usize,
}

enum Position {
    /// The field stands there, from this character on.
    At(u64),
    /// The field is part of this stretch.
    Within(u64, u64),
}

/// Borrowed [`Captured`].
#[derive(Clone, Copy)]
struct CapturedRef<'a> {
    head: &'a str,
    omitted: u64,
    tail: &'a str,
}

pub(super) fn fields(facts: &RunFacts, whole: &WholeText, chars_max: usize) -> Map<String, Value> {
    let mut longs = long_fields(facts, whole);
    let skeleton = assemble(facts, &vec![String::new(); longs.len()], &longs, chars_max);
    let fixed = Value::Object(skeleton).to_string().chars().count();
    let room = chars_max.saturating_sub(fixed);
    let share = fair_share(
        &longs.iter().map(|long| long.cost).collect::<Vec<_>>(),
        room,
    );
    let texts: Vec<String> = longs
        .iter_mut()
        .map(|long| fit(long, share, &facts.run_id))
        .collect();
    assemble(facts, &texts, &longs, chars_max)
}

/// The entries of a list that a reply of at most `chars_max` characters shows: an eighth of it.
pub(super) fn short_list(entries: &[String], chars_max: usize) -> Vec<String> {
    let mut room = chars_max / 8;
    let mut shown = Vec::new();
    for entry in entries {
        let entry = cut::shortened(entry, ENTRY_CHARS_MAX);
        // Quotes and a comma.
        match room.checked_sub(cut::json_chars(&entry) + 3) {
            Some(rest) => room = rest,
            None => break,
        }
        shown.push(entry);
    }
    if shown.len() < entries.len() {
        shown.push(format!("and {} more", entries.len() - shown.len()));
    }
    shown
}

fn assemble(
    facts: &RunFacts,
    texts: &[String],
    longs: &[Long<'_>],
    chars_max: usize,
) -> Map<String, Value> {
    let long = |name: &str, inner: Option<&str>| {
        longs
            .iter()
            .position(|long| long.path == (name, inner))
            .map(|at| texts[at].clone())
    };
    let mut fields = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    put("status", Some(facts.status.as_str().into()));
    put("summary", Some(summary(facts).into()));
    put(
        "runId",
        (facts.status == Status::Running).then(|| facts.run_id.as_str().into()),
    );
    put("exitCode", facts.exit_code.map(Into::into));
    put("stdout", long("stdout", None).map(Into::into));
    put("stderr", long("stderr", None).map(Into::into));
    put("result", long("result", None).map(Into::into));
    put("servers", list(&facts.servers, chars_max));
    put(
        "error",
        facts.error.as_ref().map(|error| {
            let mut parts = Map::new();
            if !error.r#type.is_empty() {
                parts.insert(
                    "type".to_owned(),
                    cut::shortened(&error.r#type, TYPE_CHARS_MAX).into(),
                );
            }
            for inner in ["message", "traceback"] {
                if let Some(text) = long("error", Some(inner)) {
                    parts.insert(inner.to_owned(), text.into());
                }
            }
            parts.into()
        }),
    );
    put(
        "timeoutSeconds",
        (facts.status == Status::Timeout).then(|| json!(facts.timeout_seconds)),
    );
    put("calls", (facts.calls > 0).then(|| json!(facts.calls)));
    put(
        "sandbox",
        facts.sandbox.as_ref().map(|sandbox| json!(sandbox.kind())),
    );
    put("notes", list(&facts.notes, chars_max));
    put("warnings", list(&facts.warnings, chars_max));
    fields
}

fn list(entries: &[String], chars_max: usize) -> Option<Value> {
    (!entries.is_empty()).then(|| short_list(entries, chars_max).into())
}

fn long_fields<'a>(facts: &'a RunFacts, whole: &WholeText) -> Vec<Long<'a>> {
    let stdout = &facts.stdout;
    let stderr = &facts.stderr;
    let after = whole.after_from(facts);
    let error = Position::Within(after + whole.error_from, after + whole.error_to);
    let mut longs = Vec::new();
    let mut add = |path, text: CapturedRef<'a>, position| {
        if !text.head.is_empty() {
            longs.push(Long {
                path,
                text,
                position,
                cost: text.cost(),
            });
        }
    };
    add(("stdout", None), CapturedRef::of(stdout), Position::At(0));
    add(
        ("stderr", None),
        CapturedRef::of(stderr),
        Position::At(whole.stderr_from(facts)),
    );
    if let Some(result) = &facts.result {
        add(
            ("result", None),
            CapturedRef::whole(result),
            Position::At(after + whole.result_from),
        );
    }
    if let Some(facts) = &facts.error {
        let again = Position::Within(after + whole.error_from, after + whole.error_to);
        add(
            ("error", Some("message")),
            CapturedRef::whole(&facts.message),
            error,
        );
        add(
            ("error", Some("traceback")),
            CapturedRef::whole(&facts.traceback),
            again,
        );
    }
    longs
}

impl<'a> CapturedRef<'a> {
    fn of(captured: &'a Captured) -> Self {
        Self {
            head: &captured.head,
            omitted: captured.omitted,
            tail: &captured.tail,
        }
    }

    fn whole(text: &'a str) -> Self {
        Self {
            head: text,
            omitted: 0,
            tail: "",
        }
    }

    /// Characters of JSON that the whole would take; more than any cap if it is not known whole.
    fn cost(&self) -> usize {
        if self.omitted > 0 {
            usize::MAX
        } else {
            cut::json_chars(self.head).saturating_add(cut::json_chars(self.tail))
        }
    }
}

/// The largest share such that all fields, each taking no more than it needs, fit into `room`.
fn fair_share(costs: &[usize], room: usize) -> usize {
    let mut costs = costs.to_vec();
    costs.sort_unstable();
    let mut room = room;
    for (at, cost) in costs.iter().enumerate() {
        let share = room / (costs.len() - at);
        if *cost > share {
            return share;
        }
        room -= cost;
    }
    usize::MAX
}

fn fit(long: &mut Long<'_>, share: usize, run_id: &str) -> String {
    let CapturedRef {
        head,
        omitted,
        tail,
    } = long.text;
    if long.cost <= share {
        return format!("{head}{tail}");
    }
    let total = head.chars().count() as u64 + omitted + tail.chars().count() as u64;
    // The largest number takes the most room.
    let largest = match long.position {
        Position::At(base) => base + total,
        Position::Within(_, end) => end,
    };
    let room = share.saturating_sub(cut::json_chars(&cut::notice(
        run_id, total, largest, largest,
    )));
    let beginning = cut::prefix_of_cost(head, room - room / 2);
    // A whole text is its own end.
    let ending = cut::suffix_of_cost(
        if omitted == 0 && tail.is_empty() {
            head
        } else {
            tail
        },
        room / 2,
    );
    let (from, to) = (
        beginning.chars().count() as u64,
        total - ending.chars().count() as u64,
    );
    let (read_from, read_to) = match long.position {
        Position::At(base) => (base + from, base + to),
        Position::Within(start, end) => (start, end),
    };
    format!(
        "{beginning}{}{ending}",
        cut::notice(run_id, to.saturating_sub(from), read_from, read_to)
    )
}
