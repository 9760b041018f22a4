//! The tables of the record and the statements on them.

use std::collections::HashMap;
use std::fmt::Write as _;

use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params, params_from_iter};

use super::pending::Pending;
use super::{After, Call, Captured, Filter, Page, Retention, RunDetail, RunRow, Sums};

/// One entry per schema version. Never change one that was released.
pub(super) const MIGRATIONS: &[&str] = &[
    "
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
",
    "
    ALTER TABLE runs ADD COLUMN connection TEXT;
    ALTER TABLE runs ADD COLUMN title TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN kind TEXT;
    ALTER TABLE runs ADD COLUMN output_omitted INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN stderr_head TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN stderr_tail TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN stderr_omitted INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN result TEXT;
    ALTER TABLE runs ADD COLUMN error_text TEXT;
    ALTER TABLE runs ADD COLUMN calls_failed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN reply_tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN result_tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN definition_tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE calls ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE calls ADD COLUMN error TEXT;
    CREATE TABLE memory_uses (key TEXT PRIMARY KEY, used_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
",
    "ALTER TABLE runs ADD COLUMN memory_bytes_peak INTEGER;",
    "
    ALTER TABLE runs ADD COLUMN log TEXT NOT NULL DEFAULT '[]';
",
];

/// Runs removed in one transaction, so that others can write in between.
const PRUNE_BATCH: usize = 500;

/// Longer than any run may take: what still runs then died with its bridge.
const RUN_MS_MAX: i64 = 24 * 60 * 60 * 1000;

/// Uses of memory items are kept for a year.
const USES_KEPT_MS: i64 = 365 * 24 * 60 * 60 * 1000;

const CALLS_SHOWN_MAX: usize = 1_000;

const ROW_COLUMNS: &str =
    "run_id, client, session, sandbox, started_at, ended_at, status, error, servers, calls, connection, title, kind,
     calls_failed, reply_tokens, result_tokens, definition_tokens, memory_bytes_peak";

/// How many columns [`ROW_COLUMNS`] has.
const ROW_WIDTH: usize = 18;

pub(super) fn write(connection: &mut Connection, batch: &Pending) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for run in batch.iter() {
        write_run(&transaction, run)?;
    }
    for (key, used_at) in batch.memory_uses() {
        transaction
            .prepare_cached(
                "INSERT INTO memory_uses VALUES (?1, ?2) ON CONFLICT DO UPDATE SET used_at = max(used_at, ?2)",
            )?
            .execute(params![key, used_at])?;
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
                                   output_head, output_tail, connection, title)
                 VALUES (?1, ?2, ?3, ?4, ?5, 'running', '[]', 0, ?6, '', '', ?7, ?8) ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                started.run_id,
                started.client,
                started.session,
                started.sandbox,
                started.started_at,
                started.code,
                started.connection,
                started.title
            ])?;
    }
    for call in &run.calls {
        // A run that is not there was removed or lost; its calls mean nothing then.
        transaction
            .prepare_cached(
                "INSERT INTO calls (run_id, server, tool, arguments, started_at, duration_ms, result_bytes, error_code,
                                    number, error)
                 SELECT run_id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM runs WHERE run_id = ?1",
            )?
            .execute(params![
                run.run_id,
                call.server,
                call.tool,
                call.arguments,
                call.started_at,
                clamped(call.duration_ms),
                clamped(call.result_bytes),
                call.error_code,
                clamped(call.number),
                call.error
            ])?;
    }
    if let Some(ended) = &run.ended {
        let servers = serde_json::Value::from(ended.servers.clone()).to_string();
        let log = serde_json::to_string(&ended.log).unwrap_or_else(|_| "[]".to_owned());
        transaction
            .prepare_cached(
                "UPDATE runs SET ended_at = ?2, status = ?3, error = ?4, servers = ?5, calls = ?6, output_head = ?7,
                                 output_tail = ?8, output_omitted = ?9, stderr_head = ?10, stderr_tail = ?11,
                                 stderr_omitted = ?12, result = ?13, error_text = ?14, calls_failed = ?15, kind = ?16,
                                 reply_tokens = ?17, result_tokens = ?18, definition_tokens = ?19,
                                 memory_bytes_peak = ?20, log = ?21
                 WHERE run_id = ?1",
            )?
            .execute(params![
                run.run_id,
                ended.ended_at,
                ended.status,
                ended.error,
                servers,
                clamped(ended.calls),
                ended.stdout.head,
                ended.stdout.tail,
                clamped(ended.stdout.omitted),
                ended.stderr.head,
                ended.stderr.tail,
                clamped(ended.stderr.omitted),
                ended.result,
                ended.error_text,
                clamped(ended.calls_failed),
                ended.kind,
                clamped(ended.reply_tokens),
                clamped(ended.result_tokens),
                clamped(ended.definition_tokens),
                ended.memory_bytes_peak.map(clamped),
                log
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
                "SELECT {ROW_COLUMNS}, code, output_head, output_tail, output_omitted, stderr_head, stderr_tail,
                        stderr_omitted, result, error_text, log
                 FROM runs WHERE run_id = ?1"
            ),
            [run_id],
            |row| {
                let log: String = row.get(ROW_WIDTH + 9)?;
                Ok(RunDetail {
                    row: row_of(row)?,
                    code: row.get(ROW_WIDTH)?,
                    stdout: captured_of(row, ROW_WIDTH + 1)?,
                    stderr: captured_of(row, ROW_WIDTH + 4)?,
                    result: row.get(ROW_WIDTH + 7)?,
                    error_text: row.get(ROW_WIDTH + 8)?,
                    call_list: Vec::new(),
                    log: serde_json::from_str(&log).unwrap_or_default(),
                })
            },
        )
        .optional()?;
    let Some(mut detail) = detail else {
        return Ok(None);
    };
    detail.call_list = connection
        .prepare(
            "SELECT server, tool, arguments, started_at, duration_ms, result_bytes, error_code, number, error FROM calls
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
        connection: row.get(10)?,
        title: row.get(11)?,
        kind: row.get(12)?,
        calls_failed: row.get::<_, i64>(13)?.unsigned_abs(),
        reply_tokens: row.get::<_, i64>(14)?.unsigned_abs(),
        result_tokens: row.get::<_, i64>(15)?.unsigned_abs(),
        definition_tokens: row.get::<_, i64>(16)?.unsigned_abs(),
        memory_bytes_peak: row.get::<_, Option<i64>>(17)?.map(i64::unsigned_abs),
    })
}

/// The two ends of a stream and what is between, from column `at` on.
fn captured_of(row: &Row<'_>, at: usize) -> rusqlite::Result<Captured> {
    Ok(Captured {
        head: row.get(at)?,
        tail: row.get(at + 1)?,
        omitted: row.get::<_, i64>(at + 2)?.unsigned_abs(),
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
        number: row.get::<_, i64>(7)?.unsigned_abs(),
        error: row.get(8)?,
    })
}

pub(super) fn page(
    connection: &Connection,
    filter: &Filter,
    after: Option<&After>,
    rows: usize,
) -> rusqlite::Result<Page> {
    let (condition, values) = condition(filter);
    let total = connection.query_row(
        &format!("SELECT count(*) FROM runs WHERE {condition}"),
        params_from_iter(&values),
        |row| row.get::<_, i64>(0),
    )?;
    let (started_at, run_id) = after.map_or((i64::MAX, ""), |after| {
        (after.started_at, after.run_id.as_str())
    });
    let mut values = values;
    values.extend([
        started_at.into(),
        run_id.to_owned().into(),
        // One more than asked for tells whether there are more.
        clamped(rows as u64 + 1).into(),
    ]);
    let mut runs: Vec<RunRow> = connection
        .prepare(&format!(
            "SELECT {ROW_COLUMNS} FROM runs WHERE {condition} AND (started_at, run_id) < (?, ?)
             ORDER BY started_at DESC, run_id DESC LIMIT ?"
        ))?
        .query_map(params_from_iter(&values), row_of)?
        .collect::<rusqlite::Result<_>>()?;
    let more = runs.len() > rows;
    runs.truncate(rows);
    let clients = connection
        .prepare("SELECT DISTINCT client FROM runs ORDER BY client LIMIT 1000")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Page {
        runs,
        total: total.unsigned_abs(),
        more,
        clients,
    })
}

/// A filter as SQL, with what stands at its question marks.
fn condition(filter: &Filter) -> (String, Vec<SqlValue>) {
    let mut condition = "status <> 'running'".to_owned();
    let mut values: Vec<SqlValue> = Vec::new();
    if let Some(client) = &filter.client {
        condition.push_str(" AND client = ?");
        values.push(client.clone().into());
    }
    if let Some(status) = &filter.status {
        condition.push_str(" AND status = ?");
        values.push(status.clone().into());
    }
    if let Some(server) = &filter.server {
        condition.push_str(
            " AND EXISTS (SELECT 1 FROM json_each(runs.servers) WHERE json_each.value = ?)",
        );
        values.push(server.clone().into());
    }
    if !filter.text.is_empty() {
        let columns = [
            "code",
            "output_head",
            "output_tail",
            "stderr_head",
            "stderr_tail",
        ];
        let likes = columns.map(|column| format!("{column} LIKE ? ESCAPE '\\'"));
        let _ = write!(condition, " AND ({})", likes.join(" OR "));
        let mut pattern = String::from("%");
        for character in filter.text.chars() {
            if matches!(character, '%' | '_' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('%');
        values.extend(columns.map(|_| SqlValue::from(pattern.clone())));
    }
    (condition, values)
}

pub(super) fn memory_uses(connection: &Connection) -> rusqlite::Result<HashMap<String, i64>> {
    connection
        .prepare("SELECT key, used_at FROM memory_uses")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

pub(super) fn sums(connection: &Connection, since: i64) -> rusqlite::Result<Sums> {
    let mut sums = connection.query_row(
        "SELECT count(*), total(calls), total(max(result_tokens - reply_tokens, 0)) FROM runs
         WHERE started_at >= ?1 AND status <> 'running'",
        [since],
        |row| {
            Ok(Sums {
                runs: row.get::<_, i64>(0)?.unsigned_abs(),
                calls: row.get::<_, f64>(1)? as u64,
                results_saved_tokens: row.get::<_, f64>(2)? as u64,
                definition_tokens: 0,
            })
        },
    )?;
    sums.definition_tokens = connection.query_row(
        "SELECT total(tokens) FROM (SELECT max(definition_tokens) AS tokens FROM runs
         WHERE started_at >= ?1 AND connection IS NOT NULL GROUP BY connection)",
        [since],
        |row| row.get::<_, f64>(0),
    )? as u64;
    Ok(sums)
}

pub(super) fn calls_by_server(
    connection: &Connection,
    since: i64,
) -> rusqlite::Result<Vec<(String, u64)>> {
    connection
        .prepare(
            "SELECT calls.server, count(*) FROM calls JOIN runs USING (run_id)
             WHERE runs.started_at >= ?1 GROUP BY calls.server",
        )?
        .query_map([since], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
        })?
        .collect()
}

pub(super) fn any_success(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM runs WHERE status = 'success')",
        [],
        |row| row.get(0),
    )
}

pub(super) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM runs WHERE status <> 'running'", [])?;
    Ok(())
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
        // Uses of items that were forgotten long ago.
        connection.execute(
            "DELETE FROM memory_uses WHERE used_at < ?1",
            [now - USES_KEPT_MS],
        )?;
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
