//! One `SQLite` file: opened in WAL mode, brought to the current schema, put aside when it is
//! damaged. Knows nothing of what is in its tables. Everything here blocks.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::atomic::{self, Lock, LockError};

/// How long one statement waits for another process that writes.
const BUSY_WAIT: Duration = Duration::from_secs(2);

/// How long putting a damaged file aside waits for another process that does the same.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A newer version of this program wrote it.
    #[error("`{}` has schema {found}, this version knows schemas up to {known}; update this program", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: usize,
        /// The newest known one.
        known: usize,
    },
    /// The database refused.
    #[error("cannot {operation} `{}`: {source}", path.display())]
    Sqlite {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
    /// The file system refused.
    #[error("cannot {operation} `{}`: {source}", path.display())]
    Io {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process is putting the file aside.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl StoreError {
    /// Whether the file is no database, or no longer.
    pub fn is_damage(&self) -> bool {
        let Self::Sqlite { source, .. } = self else {
            return false;
        };
        matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        )
    }
}

/// Open `path`, which is created with its folder if absent, and apply the migrations it lacks. Its
/// `user_version` is the number of those applied.
pub fn open(path: &Path, migrations: &[&str]) -> Result<Connection, StoreError> {
    if let Some(folder) = path.parent() {
        atomic::create_folder(folder).map_err(|source| StoreError::Io {
            operation: "create the folder of",
            path: path.to_owned(),
            source,
        })?;
    }
    let mut connection = Connection::open(path).map_err(failed("open", path))?;
    prepare(&mut connection, path, migrations)?;
    Ok(connection)
}

/// Open `path` for reading only; `None` if there is no such file.
pub fn open_to_read(path: &Path) -> Result<Option<Connection>, StoreError> {
    if !path.exists() {
        return Ok(None);
    }
    let failed = failed("read", path);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(&failed)?;
    connection.busy_timeout(BUSY_WAIT).map_err(&failed)?;
    Ok(Some(connection))
}

/// As [`open`], but a damaged file is renamed and a new one begun; tells where the old one is now.
pub fn open_or_set_aside(
    path: &Path,
    migrations: &[&str],
) -> Result<(Connection, Option<PathBuf>), StoreError> {
    match open(path, migrations) {
        Err(error) if error.is_damage() => {}
        other => return other.map(|connection| (connection, None)),
    }
    let _lock = Lock::take(&with_suffix(path, ".lock"), LOCK_WAIT)?;
    // Another process may have done it while this one waited.
    match open(path, migrations) {
        Err(error) if error.is_damage() => {}
        other => return other.map(|connection| (connection, None)),
    }
    let io_failed = |source| StoreError::Io {
        operation: "put aside",
        path: path.to_owned(),
        source,
    };
    let aside = atomic::set_aside(path).map_err(io_failed)?;
    for suffix in ["-wal", "-shm"] {
        match std::fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_failed(error)),
            _ => {}
        }
    }
    Ok((open(path, migrations)?, Some(aside)))
}

fn prepare(
    connection: &mut Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<(), StoreError> {
    let failed = failed("prepare", path);
    connection.busy_timeout(BUSY_WAIT).map_err(&failed)?;
    // NORMAL may lose the last moments at a power cut, never consistency. A record of what ran can
    // afford that; a flush per row it cannot.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;",
        )
        .map_err(&failed)?;
    // The version is read inside the transaction, so that of two processes one migrates.
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(&failed)?;
    let version: u32 = transaction
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(&failed)?;
    let Some(missing) = migrations.get(version as usize..) else {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found: version as usize,
            known: migrations.len(),
        });
    };
    for migration in missing {
        transaction.execute_batch(migration).map_err(&failed)?;
    }
    transaction
        .pragma_update(None, "user_version", migrations.len() as i64)
        .map_err(&failed)?;
    transaction.commit().map_err(&failed)
}

/// Turn an error of the database into one that names the operation and the file.
pub(crate) fn failed(
    operation: &'static str,
    path: &Path,
) -> impl Fn(rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Sqlite {
        operation,
        path: path.clone(),
        source,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]
    use super::*;

    const FIRST: &str = "CREATE TABLE a (x INTEGER) STRICT";
    const SECOND: &str = "ALTER TABLE a ADD COLUMN y TEXT";

    #[test]
    fn migrations_are_applied_once_and_in_order() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("new folder/file.db");
        open(&path, &[FIRST])
            .unwrap()
            .execute("INSERT INTO a VALUES (1)", [])
            .unwrap();
        for _ in 0..2 {
            let connection = open(&path, &[FIRST, SECOND]).unwrap();
            let row = connection.query_row("SELECT x, y FROM a", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?))
            });
            assert_eq!(row.unwrap(), (1, None));
        }
        let error = open(&path, &[FIRST]).unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Newer {
                    found: 2,
                    known: 1,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_failed_migration_leaves_the_file_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file.db");
        open(&path, &[FIRST]).unwrap();
        open(&path, &[FIRST, "CREATE TABLE b (x INTEGER); broken"]).unwrap_err();
        open(&path, &[FIRST, "CREATE TABLE b (x INTEGER)"]).unwrap();
    }

    #[test]
    fn a_damaged_file_is_put_aside_with_its_content() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file.db");
        let garbage = "no database ".repeat(1_000);
        std::fs::write(&path, &garbage).unwrap();
        let (_, aside) = open_or_set_aside(&path, &[FIRST]).unwrap();
        assert_eq!(std::fs::read_to_string(aside.unwrap()).unwrap(), garbage);
        assert_eq!(open_or_set_aside(&path, &[FIRST]).unwrap().1, None);
    }
}
