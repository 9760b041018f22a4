//! The tables of the record and the statements on them.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::pending::Pending;
use super::{After, Call, Retention, RunDetail, RunRow};

/// One entry per schema version. Never change one that was released.
pub(super) const MIGRATIONS: &[&str] = &["
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        client TEXT NOT NULL,
        session TEXT,
        sandbox TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        status TEXT NOT NULL,
        error TEXT,
        servers TEXT NOT NULL,
        calls INTEGER NOT NULL,
        code TEXT NOT NULL,
        output_head TEXT NOT NULL,
        output_tail TEXT NOT NULL
    ) STRICT;
    CREATE INDEX runs_by_start ON runs (started_at, run_id);
    CREATE TABLE calls (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        server TEXT NOT NULL,
        tool TEXT NOT NULL,
        arguments TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        duration_ms INTEGER NOT NULL,
        result_bytes INTEGER NOT NULL,
        error_code TEXT
    ) STRICT;
    CREATE INDEX calls_by_run ON calls (run_id);
"];

/// Runs removed in one transaction, so that others can write in between.
const PRUNE_BATCH: usize = 500;

/// Longer than any run may take: what still runs then died with its bridge.
const RUN_MS_MAX: i64 = 24 * 60 * 60 * 1000;

const CALLS_SHOWN_MAX: usize = 1_000;

const ROW_COLUMNS: &str =
    "run_id, client, session, sandbox, started_at, ended_at, status, error, servers, calls";

pub(super) fn write(connection: &mut Connection, batch: &Pending) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for run in batch.iter() {
        write_run(&transaction, run)?;
    }
    transaction.commit()
}

fn write_run(
    transaction: &Transaction<'_>,
    run: &super::pending::PendingRun,
) -> rusqlite::Result<()> {
    if let Some(started) = &run.started {
        transaction
            .prepare_cached(
                "INSERT INTO runs (run_id, client, session, sandbox, started_at, status, servers, calls, code,
                                   output_head, output_tail)
                 VALUES (?1, ?2, ?3, ?4, ?5, 'running', '[]', 0, ?6, '', '') ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                started.run_id,
                started.client,
                started.session,
                started.sandbox,
                started.started_at,
                started.code
            ])?;
    }
    for call in &run.calls {
        // A run that is not there was removed or lost; its calls mean nothing then.
        transaction
            .prepare_cached(
                "INSERT INTO calls SELECT run_id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM runs WHERE run_id = ?1",
            )?
            .execute(params![
                run.run_id,
                call.server,
                call.tool,
                call.arguments,
                call.started_at,
                clamped(call.duration_ms),
                clamped(call.result_bytes),
                call.error_code
            ])?;
    }
    if let Some(ended) = &run.ended {
        let servers = serde_json::Value::from(ended.servers.clone()).to_string();
        transaction
            .prepare_cached(
                "UPDATE runs SET ended_at = ?2, status = ?3, error = ?4, servers = ?5, calls = ?6, output_head = ?7,
                                 output_tail = ?8
                 WHERE run_id = ?1",
            )?
            .execute(params![
                run.run_id,
                ended.ended_at,
                ended.status,
                ended.error,
                servers,
                clamped(ended.calls),
                ended.output_head,
                ended.output_tail
            ])?;
    }
    Ok(())
}

/// The database's integers have a sign.
fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Runs whose bridge was killed would show as running for ever.
pub(super) fn mark_interrupted(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE runs SET status = 'interrupted' WHERE status = 'running' AND started_at < ?1",
        [now - RUN_MS_MAX],
    )?;
    Ok(())
}

pub(super) fn recent(
    connection: &Connection,
    after: Option<&After>,
    rows: usize,
) -> rusqlite::Result<Vec<RunRow>> {
    let (started_at, run_id) = after.map_or((i64::MAX, ""), |after| {
        (after.started_at, after.run_id.as_str())
    });
    connection
        .prepare(&format!(
            "SELECT {ROW_COLUMNS} FROM runs WHERE (started_at, run_id) < (?1, ?2)
             ORDER BY started_at DESC, run_id DESC LIMIT ?3"
        ))?
        .query_map(params![started_at, run_id, clamped(rows as u64)], row_of)?
        .collect()
}

pub(super) fn detail(connection: &Connection, run_id: &str) -> rusqlite::Result<Option<RunDetail>> {
    let detail = connection
        .query_row(
            &format!(
                "SELECT {ROW_COLUMNS}, code, output_head, output_tail FROM runs WHERE run_id = ?1"
            ),
            [run_id],
            |row| {
                Ok(RunDetail {
                    row: row_of(row)?,
                    code: row.get(10)?,
                    output_head: row.get(11)?,
                    output_tail: row.get(12)?,
                    call_list: Vec::new(),
                })
            },
        )
        .optional()?;
    let Some(mut detail) = detail else {
        return Ok(None);
    };
    detail.call_list = connection
        .prepare(
            "SELECT server, tool, arguments, started_at, duration_ms, result_bytes, error_code FROM calls
             WHERE run_id = ?1 ORDER BY rowid LIMIT ?2",
        )?
        .query_map(params![run_id, clamped(CALLS_SHOWN_MAX as u64)], call_of)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(detail))
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let servers: String = row.get(8)?;
    Ok(RunRow {
        run_id: row.get(0)?,
        client: row.get(1)?,
        session: row.get(2)?,
        sandbox: row.get(3)?,
        started_at: row.get(4)?,
        ended_at: row.get(5)?,
        status: row.get(6)?,
        error: row.get(7)?,
        servers: serde_json::from_str(&servers).unwrap_or_default(),
        calls: row.get::<_, i64>(9)?.unsigned_abs(),
    })
}

fn call_of(row: &Row<'_>) -> rusqlite::Result<Call> {
    Ok(Call {
        server: row.get(0)?,
        tool: row.get(1)?,
        arguments: row.get(2)?,
        started_at: row.get(3)?,
        duration_ms: row.get::<_, i64>(4)?.unsigned_abs(),
        result_bytes: row.get::<_, i64>(5)?.unsigned_abs(),
        error_code: row.get(6)?,
    })
}

/// Remove what retention does not keep, oldest first.
pub(super) fn prune(
    connection: &mut Connection,
    retention: Retention,
    now: i64,
) -> rusqlite::Result<()> {
    let oldest = now - i64::from(retention.days_max) * 24 * 60 * 60 * 1000;
    loop {
        let old = connection.execute(
            "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE started_at < ?1 LIMIT ?2)",
            params![oldest, clamped(PRUNE_BATCH as u64)],
        )?;
        let many = connection.execute(
            "DELETE FROM runs WHERE run_id IN (
                 SELECT run_id FROM runs ORDER BY started_at DESC, run_id DESC LIMIT ?2 OFFSET ?1)",
            params![
                clamped(retention.runs_max as u64),
                clamped(PRUNE_BATCH as u64)
            ],
        )?;
        let large = if content_bytes(connection)? > retention.bytes_max {
            connection.execute(
                "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs ORDER BY started_at, run_id LIMIT 50)",
                [],
            )?
        } else {
            0
        };
        if old + many + large == 0 {
            return Ok(());
        }
    }
}

/// Bytes in use; freed pages are used again before the file grows.
fn content_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let pages = number("PRAGMA page_count")? - number("PRAGMA freelist_count")?;
    Ok((pages * number("PRAGMA page_size")?).unsigned_abs())
}
