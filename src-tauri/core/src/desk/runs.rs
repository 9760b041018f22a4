//! Runs, live and past.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use super::{Answer, Desk, Inner, OWN_CLIENT, blocking, errors, lock, save_file};
use crate::activity::{self, After, Filter, RunRow};
use crate::api::{
    ApiError, Call, CallState, Change, ErrorCode, Run, RunCursor, RunDetail, RunFilter, RunPage,
    RunStatus, SandboxKind, Savings,
};
use crate::bridge::Bridge;
use crate::output::{Captured, run_name};
use crate::questions::Behind;
use crate::request;
use crate::run;

/// Runs that one page may have.
const PAGE_MAX: u32 = activity::PAGE_ROWS_MAX as u32;

impl Desk {
    /// Stop all runs and calls, and let none begin, or let them begin again.
    pub fn set_paused(&self, paused: bool) {
        self.0.bridge.set_paused(paused);
        self.0.bridge.events().tell(Change::Paused { paused });
        self.0.look_at_attention();
    }

    /// Run code in an interpreter of the window's own; gives the run's identifier at once.
    pub fn run_code(&self, code: String) -> Answer<String> {
        let bridge = &self.0.bridge;
        if bridge.is_paused() {
            let message = "everything is paused, so nothing runs";
            return Err(ApiError::new(ErrorCode::BridgeBusy, message).hint("Resume first"));
        }
        let limits = bridge.settings().limits.clone();
        let arguments = [("code".to_owned(), code.into())].into_iter().collect();
        let (default, max) = (limits.run_ms_default / 1000, limits.run_ms_max / 1000);
        let request = request::parse(arguments, default, max)
            .map_err(|message| ApiError::new(ErrorCode::InvalidArguments, message))?;
        let id = run::unguessable();
        let (shared, own) = (
            std::sync::Arc::clone(bridge),
            std::sync::Arc::clone(&self.0.own),
        );
        let ask = bridge.open_questions().of_run(Behind {
            run_id: run_name(id),
            client: OWN_CLIENT.to_owned(),
        });
        // It ends by its own deadline, and with the bridge, which waits for it.
        bridge.runs().spawn(async move {
            let cancel = own.cancel_token().child_token();
            let running = run::run_as(
                id,
                &shared,
                &own,
                Some(OWN_CLIENT),
                request,
                cancel,
                run::Audience {
                    report: None,
                    ask: Some(ask),
                },
                None,
            );
            running.await;
        });
        Ok(run_name(id))
    }

    /// Some runs that have ended, the newest first.
    pub async fn read_runs(
        &self,
        filter: RunFilter,
        after: Option<RunCursor>,
        limit: u32,
    ) -> Answer<RunPage> {
        let bridge = std::sync::Arc::clone(&self.0.bridge);
        blocking(move || {
            let after = after.map(|after| After {
                started_at: after.started_at,
                run_id: after.id,
            });
            let rows = limit.clamp(1, PAGE_MAX) as usize;
            let page = bridge
                .activity()
                .page(&filter_of(filter), after.as_ref(), rows)?;
            let next = page.more.then(|| page.runs.last()).flatten();
            let next = next.map(|last| RunCursor {
                started_at: last.started_at,
                id: last.run_id.clone(),
            });
            let redactor = bridge.redactor();
            let title = |row: RunRow| {
                let mut run = run_of(row);
                run.title = redactor.text(&run.title).into_owned();
                run
            };
            Ok(RunPage {
                runs: page.runs.into_iter().map(title).collect(),
                total: page.total,
                next,
                clients: page.clients,
            })
        })
        .await
    }

    /// A run with its code, output and calls, ended or not.
    pub async fn read_run(&self, id: String) -> Answer<RunDetail> {
        if let Some(live) = self.0.bridge.live_runs().detail(&id) {
            return Ok(live);
        }
        let bridge = std::sync::Arc::clone(&self.0.bridge);
        blocking(move || {
            let seq = bridge.events().seq();
            match bridge.activity().run(&id)? {
                Some(detail) => Ok(redacted(&bridge, detail_of(detail, seq))),
                None => Err(not_found()),
            }
        })
        .await
    }

    /// Stop a run.
    pub fn stop_run(&self, id: &str) -> Answer<()> {
        // One that has ended in this moment is as stopped as it can be.
        if self.0.bridge.live_runs().stop(id) {
            Ok(())
        } else {
            Err(ApiError::new(
                ErrorCode::RunNotFound,
                "the run has ended already",
            ))
        }
    }

    /// Save the record of the runs that a filter lets through as JSON.
    pub async fn export_runs(&self, filter: RunFilter, path: &Path) -> Answer<String> {
        let bridge = std::sync::Arc::clone(&self.0.bridge);
        let path = path.to_owned();
        blocking(move || save_file(&path, |file| write_runs(&bridge, &filter_of(filter), file)))
            .await
    }

    /// Forget every run that has ended.
    pub async fn clear_runs(&self) -> Answer<()> {
        let inner = std::sync::Arc::clone(&self.0);
        blocking(move || {
            inner.bridge.activity().clear()?;
            inner.look_at_savings();
            Ok(())
        })
        .await
    }
}

impl Inner {
    /// Today's figures, told if they differ. Blocks.
    pub(super) fn look_at_savings(&self) {
        let midnight = super::state::midnight_ms();
        let activity = self.bridge.activity();
        let (Ok(sums), Ok(calls)) = (activity.sums(midnight), activity.calls_by_server(midnight))
        else {
            // The record says itself that it cannot be read; see `attention`.
            return;
        };
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        *lock(&self.calls_today) = calls
            .into_iter()
            .map(|(server, calls)| (server, small(calls)))
            .collect();
        let savings = Savings {
            runs_today: small(sums.runs),
            calls_today: small(sums.calls),
            definitions_tokens: sums.definition_tokens,
            results_tokens: sums.results_saved_tokens,
        };
        let mut told = lock(&self.told);
        if told.savings != savings {
            told.savings = savings;
            self.bridge.events().tell(Change::Savings { savings });
        }
    }
}

fn not_found() -> ApiError {
    ApiError::new(ErrorCode::RunNotFound, "this run is no longer on record")
}

fn filter_of(filter: RunFilter) -> Filter {
    Filter {
        client: filter.client,
        server: filter.server,
        status: filter.status.map(|status| status.as_str().to_owned()),
        text: filter.text,
    }
}

fn run_of(row: RunRow) -> Run {
    let status = RunStatus::of_record(&row.status);
    let direct = row.definition_tokens + row.result_tokens;
    let ended = row.ended_at.is_some();
    Run {
        id: row.run_id,
        client: row.client,
        connection_id: None,
        session: row.session,
        title: row.title,
        status,
        started_at: row.started_at,
        duration_ms: row
            .ended_at
            .map(|ended| ended.saturating_sub(row.started_at).unsigned_abs()),
        servers: row.servers,
        calls: u32::try_from(row.calls).unwrap_or(u32::MAX),
        calls_failed: u32::try_from(row.calls_failed).unwrap_or(u32::MAX),
        kind: row.kind.as_deref().map(|kind| match kind {
            "wasi" => SandboxKind::Wasi,
            _ => SandboxKind::Container,
        }),
        memory_bytes_peak: row.memory_bytes_peak,
        reply_tokens: ended.then_some(row.reply_tokens),
        direct_tokens: ended.then_some(direct),
    }
}

fn detail_of(detail: activity::RunDetail, seq: u64) -> RunDetail {
    let started_at = detail.row.started_at;
    let status = RunStatus::of_record(&detail.row.status);
    let (stdout, stdout_left) = joined(detail.stdout);
    let (stderr, stderr_left) = joined(detail.stderr);
    let error = detail.row.error.clone().map(|line| {
        let message = detail
            .error_text
            .filter(|text| !text.is_empty())
            .unwrap_or(line);
        ApiError::new(error_code(status), message)
    });
    let mut calls: Vec<Call> = detail
        .call_list
        .into_iter()
        .enumerate()
        .map(|(at, call)| call_of(call, at, started_at))
        .collect();
    // The record has them in the order in which they ended.
    calls.sort_by_key(|call| call.start_ms);
    RunDetail {
        run: run_of(detail.row),
        code: detail.code,
        stdout,
        stderr,
        result: detail.result,
        error,
        chars_left_out: stdout_left + stderr_left,
        calls,
        log: detail.log,
        seq,
    }
}

fn call_of(call: activity::Call, at: usize, run_started_at: i64) -> Call {
    Call {
        id: match call.number {
            // Recorded before calls had numbers.
            0 => format!("r{at}"),
            number => number.to_string(),
        },
        server: call.server,
        tool: call.tool,
        arguments: call.arguments,
        start_ms: call
            .started_at
            .saturating_sub(run_started_at)
            .max(0)
            .unsigned_abs(),
        state: match call.error_code {
            None => CallState::Done,
            Some(code) => CallState::Failed {
                error: ApiError::new(ErrorCode::of_call(&code), call.error.unwrap_or(code)),
            },
        },
        duration_ms: Some(call.duration_ms),
        result_bytes: Some(call.result_bytes),
    }
}

/// Both ends of a stream as one text, and how many characters are missing between them.
fn joined(captured: Captured) -> (String, u64) {
    if captured.omitted == 0 {
        return (captured.head + &captured.tail, 0);
    }
    let gap = format!("\n… {} characters left out …\n", captured.omitted);
    (captured.head + &gap + &captured.tail, captured.omitted)
}

fn error_code(status: RunStatus) -> ErrorCode {
    match status {
        RunStatus::Timeout => ErrorCode::RunTimeout,
        RunStatus::Cancelled => ErrorCode::RunCancelled,
        RunStatus::OutOfMemory => ErrorCode::RunOutOfMemory,
        RunStatus::ValidationError => ErrorCode::InvalidArguments,
        RunStatus::Interrupted => ErrorCode::BridgeRestarted,
        RunStatus::Queued | RunStatus::Running | RunStatus::Success | RunStatus::Error => {
            ErrorCode::PythonError
        }
    }
}

/// A secret may have become known after the run was recorded.
fn redacted(bridge: &Bridge, mut detail: RunDetail) -> RunDetail {
    let redactor = bridge.redactor();
    let clean = |text: &mut String| {
        if let std::borrow::Cow::Owned(clean) = redactor.text(text) {
            *text = clean;
        }
    };
    clean(&mut detail.run.title);
    clean(&mut detail.code);
    clean(&mut detail.stdout);
    clean(&mut detail.stderr);
    if let Some(result) = &mut detail.result {
        clean(result);
    }
    if let Some(error) = &mut detail.error {
        clean(&mut error.message);
    }
    for call in &mut detail.calls {
        clean(&mut call.arguments);
    }
    for line in &mut detail.log {
        clean(&mut line.text);
    }
    detail
}

fn write_runs(bridge: &Bridge, filter: &Filter, file: &mut std::fs::File) -> Answer<()> {
    let failed = |error: std::io::Error| errors::internal(format!("the export broke off: {error}"));
    let mut out = BufWriter::new(file);
    out.write_all(b"{\n\"format\": \"runbridge-runs\",\n\"format_version\": 1,\n\"runs\": [")
        .map_err(failed)?;
    let mut after: Option<After> = None;
    let mut first = true;
    loop {
        let page = bridge
            .activity()
            .page(filter, after.as_ref(), activity::PAGE_ROWS_MAX)?;
        for row in &page.runs {
            // Retention may have removed it meanwhile.
            let Some(detail) = bridge.activity().run(&row.run_id)? else {
                continue;
            };
            let detail = redacted(bridge, detail_of(detail, 0));
            out.write_all(if first { b"\n" } else { b",\n" })
                .map_err(failed)?;
            first = false;
            serde_json::to_writer(&mut out, &detail).map_err(|error| failed(error.into()))?;
        }
        after = page.runs.last().filter(|_| page.more).map(|last| After {
            started_at: last.started_at,
            run_id: last.run_id.clone(),
        });
        if after.is_none() {
            break;
        }
    }
    out.write_all(b"\n]\n}\n")
        .and_then(|()| out.flush())
        .map_err(failed)
}
