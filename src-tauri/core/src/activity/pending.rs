//! Events that are not written yet, by run. Bounded: when the file cannot be written for long, long
//! texts of the oldest runs go first, then the oldest runs, as retention would have it.

use std::collections::{HashMap, VecDeque};

use super::{
    ARGUMENTS_BYTES_MAX, After, CODE_BYTES_MAX, Call, Captured, OUTPUT_BYTES_MAX, RunDetail,
    RunEnded, RunRow, RunStarted, TEXT_BYTES_MAX,
};

/// Most runs that wait.
const RUNS_MAX: usize = 2_000;
/// Most bytes of texts that wait.
const BYTES_MAX: usize = 32 << 20;
/// Most memory items whose use waits.
const MEMORY_USES_MAX: usize = 10_000;
/// Most calls that wait per run; a run's end tells their number anyway.
const CALLS_MAX: usize = 2_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    /// In the order of their first events.
    runs: VecDeque<PendingRun>,
    /// When memory items were last loaded.
    memory_uses: HashMap<String, i64>,
    bytes: usize,
    lost: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PendingRun {
    pub(super) run_id: String,
    pub(super) started: Option<RunStarted>,
    pub(super) calls: Vec<Call>,
    pub(super) ended: Option<RunEnded>,
}

impl Pending {
    pub(super) fn run_started(&mut self, mut run: RunStarted) {
        shorten(&mut run.code, CODE_BYTES_MAX);
        shorten(&mut run.client, TEXT_BYTES_MAX);
        shorten(&mut run.title, TEXT_BYTES_MAX);
        shorten(&mut run.sandbox, TEXT_BYTES_MAX);
        if let Some(session) = &mut run.session {
            shorten(session, TEXT_BYTES_MAX);
        }
        self.bytes += run.code.len();
        let run_id = run.run_id.clone();
        self.at(&run_id).started = Some(run);
        self.keep_bounds();
    }

    pub(super) fn call_ended(&mut self, run_id: &str, mut call: Call) {
        shorten(&mut call.arguments, ARGUMENTS_BYTES_MAX);
        shorten(&mut call.server, TEXT_BYTES_MAX);
        shorten(&mut call.tool, TEXT_BYTES_MAX);
        for text in [&mut call.error_code, &mut call.error]
            .into_iter()
            .flatten()
        {
            shorten(text, TEXT_BYTES_MAX);
        }
        let bytes = call.arguments.len();
        let run = self.at(run_id);
        if run.calls.len() < CALLS_MAX {
            run.calls.push(call);
            self.bytes += bytes;
        }
        self.keep_bounds();
    }

    pub(super) fn run_ended(&mut self, run_id: &str, mut end: RunEnded) {
        shorten_captured(&mut end.stdout);
        shorten_captured(&mut end.stderr);
        for text in [&mut end.result, &mut end.error_text].into_iter().flatten() {
            shorten(text, OUTPUT_BYTES_MAX);
        }
        if let Some(error) = &mut end.error {
            shorten(error, TEXT_BYTES_MAX);
        }
        end.servers.truncate(100);
        end.servers
            .iter_mut()
            .for_each(|server| shorten(server, TEXT_BYTES_MAX));
        self.bytes += end.text_bytes();
        self.at(run_id).ended = Some(end);
        self.keep_bounds();
    }

    pub(super) fn memory_used(&mut self, key: &str, at: i64) {
        if self.memory_uses.len() < MEMORY_USES_MAX || self.memory_uses.contains_key(key) {
            self.memory_uses.insert(key.to_owned(), at);
        }
    }

    pub(super) fn memory_uses(&self) -> impl Iterator<Item = (String, i64)> {
        self.memory_uses.iter().map(|(key, at)| (key.clone(), *at))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.memory_uses.is_empty()
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PendingRun> {
        self.runs.iter()
    }

    /// Runs of which nothing is left.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// `older` could not be written; it goes before what came since.
    pub(super) fn put_back(&mut self, older: Self) {
        let newer = std::mem::replace(self, older);
        self.lost += newer.lost;
        self.bytes += newer.bytes;
        self.memory_uses.extend(newer.memory_uses);
        for run in newer.runs {
            let known = self.at(&run.run_id);
            known.started = run.started.or(known.started.take());
            known.calls.extend(run.calls);
            known.ended = run.ended.or(known.ended.take());
        }
        self.keep_bounds();
    }

    /// Show what is pending in a page of rows that begins behind `after`.
    pub(super) fn apply_to_page(&self, after: Option<&After>, page: &mut Vec<RunRow>) {
        for run in &self.runs {
            let known = page.iter_mut().find(|row| row.run_id == run.run_id);
            if let Some(row) = known {
                run.apply(row);
            } else if let Some(started) = &run.started {
                let on_page = after.is_none_or(|after| {
                    (started.started_at, &started.run_id) < (after.started_at, &after.run_id)
                });
                if on_page {
                    let mut row = RunRow::default();
                    run.apply(&mut row);
                    page.push(row);
                }
            }
        }
    }

    /// Runs whose end is pending.
    pub(super) fn ended(&self) -> impl Iterator<Item = RunDetail> {
        let ended = self
            .runs
            .iter()
            .filter(|run| run.ended.is_some() && run.started.is_some());
        ended.map(|run| {
            let mut detail = RunDetail::default();
            run.apply_to_detail(&mut detail);
            detail
        })
    }

    /// Show what is pending of one run.
    pub(super) fn apply_to_detail(&self, run_id: &str, detail: &mut Option<RunDetail>) {
        let Some(run) = self.runs.iter().find(|run| run.run_id == run_id) else {
            return;
        };
        if detail.is_none() && run.started.is_none() {
            return;
        }
        let detail = detail.get_or_insert_default();
        run.apply_to_detail(detail);
    }

    /// The run's entry, searched from the back: events mostly are of the newest runs.
    fn at(&mut self, run_id: &str) -> &mut PendingRun {
        let at = self
            .runs
            .iter()
            .rposition(|run| run.run_id == run_id)
            .unwrap_or_else(|| {
                self.runs.push_back(PendingRun {
                    run_id: run_id.to_owned(),
                    ..PendingRun::default()
                });
                self.runs.len() - 1
            });
        &mut self.runs[at]
    }

    fn keep_bounds(&mut self) {
        while self.runs.len() > RUNS_MAX {
            if let Some(run) = self.runs.pop_front() {
                self.bytes = self.bytes.saturating_sub(run.text_bytes());
                self.lost += 1;
            }
        }
        if self.bytes > BYTES_MAX {
            // Down to half, so that not every event comes here.
            for run in &mut self.runs {
                self.bytes = self.bytes.saturating_sub(run.text_bytes());
                run.drop_texts();
                if self.bytes <= BYTES_MAX / 2 {
                    break;
                }
            }
        }
    }
}

impl RunEnded {
    fn text_bytes(&self) -> usize {
        let Self {
            stdout,
            stderr,
            result,
            error_text,
            log,
            ..
        } = self;
        stdout.head.len()
            + stdout.tail.len()
            + stderr.head.len()
            + stderr.tail.len()
            + result.as_ref().map_or(0, String::len)
            + error_text.as_ref().map_or(0, String::len)
            + log.iter().map(|line| line.text.len()).sum::<usize>()
    }
}

impl PendingRun {
    fn apply_to_detail(&self, detail: &mut RunDetail) {
        self.apply(&mut detail.row);
        if let Some(started) = &self.started {
            detail.code.clone_from(&started.code);
        }
        if let Some(ended) = &self.ended {
            detail.stdout.clone_from(&ended.stdout);
            detail.stderr.clone_from(&ended.stderr);
            detail.result.clone_from(&ended.result);
            detail.error_text.clone_from(&ended.error_text);
            detail.log.clone_from(&ended.log);
        }
        detail.call_list.extend(self.calls.iter().cloned());
    }

    fn apply(&self, row: &mut RunRow) {
        if let Some(started) = &self.started {
            row.run_id.clone_from(&started.run_id);
            row.client.clone_from(&started.client);
            row.connection.clone_from(&started.connection);
            row.session.clone_from(&started.session);
            row.title.clone_from(&started.title);
            row.sandbox.clone_from(&started.sandbox);
            row.started_at = started.started_at;
            "running".clone_into(&mut row.status);
        }
        if let Some(ended) = &self.ended {
            row.ended_at = Some(ended.ended_at);
            row.status.clone_from(&ended.status);
            row.error.clone_from(&ended.error);
            row.servers.clone_from(&ended.servers);
            row.calls = ended.calls;
            row.calls_failed = ended.calls_failed;
            row.kind.clone_from(&ended.kind);
            row.reply_tokens = ended.reply_tokens;
            row.result_tokens = ended.result_tokens;
            row.definition_tokens = ended.definition_tokens;
            row.memory_bytes_peak = ended.memory_bytes_peak;
        }
    }

    fn text_bytes(&self) -> usize {
        self.started
            .as_ref()
            .map_or(0, |started| started.code.len())
            + self
                .calls
                .iter()
                .map(|call| call.arguments.len())
                .sum::<usize>()
            + self.ended.as_ref().map_or(0, RunEnded::text_bytes)
    }

    fn drop_texts(&mut self) {
        if let Some(started) = &mut self.started {
            started.code = String::new();
        }
        for call in &mut self.calls {
            call.arguments = String::new();
        }
        if let Some(ended) = &mut self.ended {
            ended.stdout = Captured::default();
            ended.stderr = Captured::default();
            ended.result = None;
            ended.error_text = None;
            ended.log = Vec::new();
        }
    }
}

/// Cut `text` to `bytes_max` bytes at the end of a character, and say so.
fn shorten(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let note = format!("... ({} bytes in all)", text.len());
        let mut end = bytes_max - note.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(&note);
        text.shrink_to_fit();
    }
}

/// Keep the record's bounds of a stream; what is left out is counted.
fn shorten_captured(captured: &mut Captured) {
    let Captured {
        head,
        tail,
        omitted,
    } = captured;
    if head.len() > OUTPUT_BYTES_MAX {
        let mut end = OUTPUT_BYTES_MAX;
        while !head.is_char_boundary(end) {
            end -= 1;
        }
        if *omitted == 0 && tail.is_empty() {
            // The head was the whole text; its end is the tail now.
            head[end..].clone_into(tail);
        } else {
            *omitted += head[end..].chars().count() as u64;
        }
        head.truncate(end);
        head.shrink_to_fit();
    }
    if tail.len() > OUTPUT_BYTES_MAX {
        let mut start = tail.len() - OUTPUT_BYTES_MAX;
        while !tail.is_char_boundary(start) {
            start += 1;
        }
        *omitted += tail[..start].chars().count() as u64;
        *tail = tail[start..].to_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(run_id: &str, code: &str) -> RunStarted {
        RunStarted {
            run_id: run_id.to_owned(),
            code: code.to_owned(),
            ..RunStarted::default()
        }
    }

    #[test]
    fn what_waits_is_bounded_and_the_newest_runs_stay_whole() {
        let mut pending = Pending::default();
        for number in 0..3_000 {
            let run_id = number.to_string();
            pending.run_started(started(&run_id, &"x".repeat(100_000)));
            pending.call_ended(
                &run_id,
                Call {
                    arguments: "y".repeat(20_000),
                    ..Call::default()
                },
            );
            pending.run_ended(
                &run_id,
                RunEnded {
                    error_text: Some("z".repeat(40_000)),
                    ..RunEnded::default()
                },
            );
            let held: usize = pending.iter().map(PendingRun::text_bytes).sum();
            assert_eq!(held, pending.bytes);
            assert!(held <= BYTES_MAX);
        }
        assert_eq!((pending.runs(), pending.lost()), (RUNS_MAX, 1_000));
        let newest = pending.runs.back().map(PendingRun::text_bytes);
        assert_eq!(
            newest,
            Some(100_000 + ARGUMENTS_BYTES_MAX + OUTPUT_BYTES_MAX)
        );
    }

    #[test]
    fn put_back_events_come_before_newer_ones_of_the_same_run() {
        let mut older = Pending::default();
        older.run_started(started("a", "code"));
        older.call_ended(
            "a",
            Call {
                tool: "first".to_owned(),
                ..Call::default()
            },
        );
        let mut pending = Pending::default();
        pending.call_ended(
            "a",
            Call {
                tool: "second".to_owned(),
                ..Call::default()
            },
        );
        pending.run_ended(
            "a",
            RunEnded {
                status: "success".to_owned(),
                ..RunEnded::default()
            },
        );
        pending.run_started(started("b", ""));
        pending.put_back(older);
        let mut detail = None;
        pending.apply_to_detail("a", &mut detail);
        let detail = detail.unwrap_or_default();
        assert_eq!(
            detail
                .call_list
                .iter()
                .map(|call| &call.tool[..])
                .collect::<Vec<_>>(),
            ["first", "second"]
        );
        assert_eq!(
            (detail.code.as_str(), detail.row.status.as_str()),
            ("code", "success")
        );
        assert_eq!(
            pending
                .iter()
                .map(|run| &run.run_id[..])
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut text = "★".repeat(1_000);
        shorten(&mut text, 1_000);
        assert!(
            text.len() <= 1_000 && text.ends_with("★... (3000 bytes in all)"),
            "{text}"
        );
    }

    #[test]
    fn both_ends_of_a_stream_are_kept_and_the_rest_is_counted() {
        for (head, tail, omitted) in [(60_000, 0, 0), (60_000, 60_000, 7), (5, 0, 0)] {
            let mut captured = Captured {
                head: "★".repeat(head),
                tail: "☆".repeat(tail),
                omitted,
            };
            shorten_captured(&mut captured);
            let kept = captured.head.chars().count() + captured.tail.chars().count();
            assert!(captured.head.len() <= OUTPUT_BYTES_MAX);
            assert!(captured.tail.len() <= OUTPUT_BYTES_MAX);
            assert_eq!(
                kept as u64 + captured.omitted,
                (head + tail) as u64 + omitted
            );
        }
    }
}
